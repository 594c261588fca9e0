/* The module store.message.compiled: the loops over the messages of an entry and of a pull.
 *
 * For valid messages each function does what its twin in Python does, which is used where this
 * module is not built: `pack_runs` that of store/message/batch.py, `take_alike` that of
 * broker/ingest/batch_body.py, `find_records` that of store/message/record_places.py, `join_rows`
 * that of broker/delivery/joined_rows.py. The layouts stand there. A function refuses what is not
 * valid, where its twin may go on.
 *
 * tests/store/message/test_compiled.py, tests/store/message/test_record_places.py,
 * tests/broker/ingest/test_compiled_batch_body.py and tests/broker/delivery/test_joined_rows.py
 * compare the twins, and store/message/twins.py does at each start: a module that was built of other
 * sources is not used.
 *
 * Rules: no byte is read or written before its bounds are checked, and what a pointer points into
 * is held as long as the pointer. Only the limited API is used, so one build serves all versions of
 * CPython from 3.11 on.
 */

#include "compiled.h"

int dledger_as_int(PyObject *value, long long low, long long high, long long *result)
{
    if (value == NULL)
        return -1;
    if (!PyLong_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "not an int");
        return -1;
    }
    *result = PyLong_AsLongLong(value);
    if (*result == -1 && PyErr_Occurred())
        return -1;
    if (*result < low || *result > high) {
        PyErr_Format(PyExc_OverflowError, "%lld is not within %lld and %lld", *result, low, high);
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(pack_runs_doc,
"pack_runs(runs, position, stored, store_seconds)\n--\n\n"
"The records in a list, their rows, key rows and the headers of the runs; None for large records.\n"
"See store/message/batch.py.");

PyDoc_STRVAR(take_alike_doc,
"take_alike(messages, data, start, messages_max, origin, template)\n--\n\n"
"Adds the messages that are alike; where the others begin. See broker/ingest/batch_body.py.");

PyDoc_STRVAR(find_records_doc,
"find_records(data)\n--\n\n"
"The places of records, and the byte behind them; see store/message/record_places.py.");

PyDoc_STRVAR(join_rows_doc,
"join_rows(rows, codes, messages_max, bytes_max)\n--\n\n"
"The rows that a pull returns; see broker/delivery/joined_rows.py.");

static PyMethodDef methods[] = {
    {"find_records", (PyCFunction)(void (*)(void))dledger_find_records, METH_FASTCALL,
     find_records_doc},
    {"join_rows", (PyCFunction)(void (*)(void))dledger_join_rows, METH_FASTCALL, join_rows_doc},
    {"pack_runs", (PyCFunction)(void (*)(void))dledger_pack_runs, METH_FASTCALL, pack_runs_doc},
    {"take_alike", (PyCFunction)(void (*)(void))dledger_take_alike, METH_FASTCALL, take_alike_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "compiled", "Compiled twins of hot loops; see compiled.c.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_compiled(void)
{
    return dledger_prepare_take_alike() < 0 ? NULL : PyModule_Create(&definition);
}
