/* The twin of `join_rows_in_python` in broker/delivery/joined_rows.py. */

#include "compiled.h"

#define ROW_SIZE 20

/* Rows with consecutive records. Positions of damaged rows may wrap, so they have no sign. */
typedef struct {
    uint64_t start, end;
    Py_ssize_t first, last;
    long first_size, last_size;
} Joined;

static uint32_t get_u32(const unsigned char *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static uint64_t get_u64(const unsigned char *from)
{
    return (uint64_t)get_u32(from) << 32 | get_u32(from + 4);
}

/* Whether the tags code of a row is wanted; -1 with an error. */
static int is_wanted(PyObject *codes, const unsigned char *row)
{
    PyObject *code;
    int wanted;
    if (codes == Py_None)
        return 1;
    code = PyLong_FromLongLong((int64_t)get_u64(row + 12));
    if (code == NULL)
        return -1;
    wanted = PySet_Contains(codes, code);
    Py_DECREF(code);
    return wanted;
}

static int add_joined(PyObject *list, const Joined *joined)
{
    int failed;
    PyObject *fields =
        Py_BuildValue("(LLnlnl)", (long long)joined->start, (long long)(joined->end - joined->start),
                      joined->first, joined->first_size, joined->last, joined->last_size);
    if (fields == NULL)
        return -1;
    failed = PyList_Append(list, fields);
    Py_DECREF(fields);
    return failed;
}

PyObject *dledger_join_rows(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Joined joined = {0, 0, 0, 0, 0, 0};
    const unsigned char *rows;
    char *data;
    Py_ssize_t size, looked_at;
    long long messages_max, bytes_max, messages = 0, total = 0;
    PyObject *codes, *list;

    if (count != 4 || !PyBytes_Check(args[0]) ||
        !(args[1] == Py_None || PyFrozenSet_Check(args[1]))) {
        PyErr_SetString(PyExc_TypeError, "join_rows takes bytes, a frozenset or None, two limits");
        return NULL;
    }
    codes = args[1];
    if (PyBytes_AsStringAndSize(args[0], &data, &size) < 0 ||
        dledger_as_int(args[2], 0, INT64_MAX, &messages_max) < 0 ||
        dledger_as_int(args[3], 0, INT64_MAX, &bytes_max) < 0)
        return NULL;
    if (size % ROW_SIZE != 0) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are no whole rows", size);
        return NULL;
    }
    rows = (const unsigned char *)data;
    list = PyList_New(0);
    if (list == NULL)
        return NULL;
    for (looked_at = 0; looked_at < size / ROW_SIZE; looked_at++, rows += ROW_SIZE) {
        uint64_t position = get_u64(rows);
        long record_size = (int32_t)get_u32(rows + 8);
        int wanted = is_wanted(codes, rows);
        if (wanted < 0)
            goto failed;
        if (!wanted)
            continue;
        if (messages > 0 && (total + record_size > bytes_max || messages == messages_max))
            break;
        total += record_size;
        if (messages++ == 0 || position != joined.end) {
            if (messages > 1 && add_joined(list, &joined) < 0)
                goto failed;
            joined.start = position;
            joined.first = looked_at;
            joined.first_size = record_size;
        }
        joined.end = position + (uint64_t)(int64_t)record_size;
        joined.last = looked_at;
        joined.last_size = record_size;
    }
    if (messages > 0 && add_joined(list, &joined) < 0)
        goto failed;
    return Py_BuildValue("nLN", looked_at, messages, list);

failed:
    Py_DECREF(list);
    return NULL;
}
