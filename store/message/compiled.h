/* What the compiled loops share. See compiled.c. */

#ifndef DLEDGER_COMPILED_H
#define DLEDGER_COMPILED_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* The fields of a PendingMessage. */
enum { SIZE, BODY, PROPERTIES, FLAG, BORN, TRIED, BODY_CRC, TAGS_CODE, KEY_HASHES, FIELDS };

/* An int from `low` to `high`. Returns -1 and sets an error for anything else. Only an int: another
 * number would run code of Python. */
int dledger_as_int(PyObject *value, long long low, long long high, long long *result);

/* Finds the functions that take_alike calls. Returns -1 with an error. */
int dledger_prepare_take_alike(void);

PyObject *dledger_find_records(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *dledger_join_rows(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *dledger_pack_runs(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *dledger_take_alike(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
