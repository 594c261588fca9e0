/* The twin of `take_alike_in_python` in broker/ingest/batch_body.py. */

#include "compiled.h"

#define HEAD_SIZE 20  /* of a message in a batch request, before the body */
#define FIXED_SIZE 22 /* with the size of the properties */
#define PAIR_END 2

static PyObject *body_crc32; /* isal's: the processor's own instructions */
static PyObject *key_crc32c;
static PyObject *crc_mask;

static int32_t get_i32(const unsigned char *from)
{
    return (int32_t)((uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 |
                     (uint32_t)from[3]);
}

/* The parts of a BatchTemplate, and what all messages of the request share. */
typedef struct {
    const char *before, *after, *stored_before, *stored_after;
    Py_ssize_t before_size, after_size, stored_before_size, stored_after_size;
    long long alike_size, stored_size, fixed_size;
    int changed;
    PyObject *code, *born, *tried, *prefix;
    PyTypeObject *type;
    allocfunc allocate;
} Alike;

/* The result of a call, which is an int, and its bits that `mask` has, if that is given. */
static PyObject *call_crc(PyObject *function, PyObject *data, PyObject *second, PyObject *mask)
{
    PyObject *crc = PyObject_CallFunctionObjArgs(function, data, second, NULL);
    PyObject *masked;
    if (crc == NULL || mask == NULL)
        return crc;
    masked = PyNumber_And(crc, mask);
    Py_DECREF(crc);
    return masked;
}

/* The message whose body and properties lie there: those are properties of the template. */
static PyObject *make_alike(const Alike *alike, const unsigned char *sent, Py_ssize_t body_size,
                            Py_ssize_t unique_size)
{
    const char *body_start = (const char *)sent + HEAD_SIZE;
    const char *unique_start = body_start + body_size + alike->before_size;
    PyObject *fields[FIELDS] = {NULL};
    PyObject *unique = PyBytes_FromStringAndSize(unique_start, unique_size);
    PyObject *hash = NULL, *message = NULL;

    fields[SIZE] = PyLong_FromLongLong(alike->fixed_size + body_size + alike->stored_size);
    fields[BODY] = PyBytes_FromStringAndSize(body_start, body_size);
    if (alike->changed) {
        Py_ssize_t first = alike->stored_before_size, last = alike->stored_after_size;
        fields[PROPERTIES] = PyBytes_FromStringAndSize(NULL, first + unique_size + last);
        if (fields[PROPERTIES] != NULL) {
            char *to = PyBytes_AsString(fields[PROPERTIES]);
            memcpy(to, alike->stored_before, (size_t)first);
            memcpy(to + first, unique_start, (size_t)unique_size);
            memcpy(to + first + unique_size, alike->stored_after, (size_t)last);
        }
    } else {
        fields[PROPERTIES] = PyBytes_FromStringAndSize(body_start + body_size + 2,
                                                       (Py_ssize_t)alike->alike_size - 2);
    }
    fields[FLAG] = PyLong_FromLong(get_i32(sent + 12));
    fields[BORN] = Py_NewRef(alike->born);
    fields[TRIED] = Py_NewRef(alike->tried);
    fields[TAGS_CODE] = Py_NewRef(alike->code);
    if (fields[BODY] != NULL)
        fields[BODY_CRC] = call_crc(body_crc32, fields[BODY], NULL, crc_mask);
    if (unique != NULL)
        hash = call_crc(key_crc32c, unique, alike->prefix, NULL);
    if (hash != NULL)
        fields[KEY_HASHES] = PyTuple_Pack(1, hash);
    Py_XDECREF(hash);
    Py_XDECREF(unique);

    for (int each = 0; each < FIELDS; each++) {
        if (fields[each] == NULL)
            goto failed;
    }
    message = alike->allocate(alike->type, FIELDS);
    if (message == NULL)
        goto failed;
    for (int each = 0; each < FIELDS; each++)
        PyTuple_SetItem(message, each, fields[each]);
    return message;

failed:
    for (int each = 0; each < FIELDS; each++)
        Py_XDECREF(fields[each]);
    return NULL;
}

static int read_template(PyObject *template, Alike *alike)
{
    PyObject *bytes[4];
    char *data[4];
    Py_ssize_t sizes[4];
    if (!PyTuple_Check(template) || PyTuple_Size(template) != 9) {
        PyErr_SetString(PyExc_TypeError, "not a BatchTemplate");
        return -1;
    }
    if (dledger_as_int(PyTuple_GetItem(template, 0), 2, UINT16_MAX + 2, &alike->alike_size) < 0 ||
        dledger_as_int(PyTuple_GetItem(template, 7), 0, INT32_MAX, &alike->stored_size) < 0)
        return -1;
    for (int each = 0; each < 4; each++) {
        bytes[each] = PyTuple_GetItem(template, 2 + each);
        if (PyBytes_AsStringAndSize(bytes[each], &data[each], &sizes[each]) < 0)
            return -1;
    }
    alike->before = data[0];
    alike->after = data[1];
    alike->stored_before = data[2];
    alike->stored_after = data[3];
    alike->before_size = sizes[0];
    alike->after_size = sizes[1];
    alike->stored_before_size = sizes[2];
    alike->stored_after_size = sizes[3];
    alike->changed = PyObject_IsTrue(PyTuple_GetItem(template, 6));
    alike->code = PyTuple_GetItem(template, 8);
    return alike->changed < 0 ? -1 : 0;
}

PyObject *dledger_take_alike(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Alike alike;
    PyObject *messages, *origin;
    const unsigned char *data;
    char *data_start;
    Py_ssize_t size, unique_size;
    long long start, room;

    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "take_alike takes 7 arguments");
        return NULL;
    }
    messages = args[0];
    origin = args[4];
    if (!PyList_Check(messages)) {
        PyErr_SetString(PyExc_TypeError, "the messages are not a list");
        return NULL;
    }
    room = PyList_Size(messages);
    if (PyBytes_AsStringAndSize(args[1], &data_start, &size) < 0)
        return NULL;
    data = (const unsigned char *)data_start;
    if (dledger_as_int(args[2], 0, size, &start) < 0 || read_template(args[5], &alike) < 0)
        return NULL;
    if (!PyTuple_Check(origin) || PyTuple_Size(origin) != 4 || !PyType_Check(args[6])) {
        PyErr_SetString(PyExc_TypeError, "not an Origin and a type");
        return NULL;
    }
    alike.type = (PyTypeObject *)args[6];
    if (!PyType_IsSubtype(alike.type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "not a type of tuples");
        return NULL;
    }
    alike.allocate = (allocfunc)PyType_GetSlot(alike.type, Py_tp_alloc);
    alike.born = PyTuple_GetItem(origin, 0);
    alike.tried = PyTuple_GetItem(origin, 1);
    alike.prefix = PyTuple_GetItem(origin, 2);
    long long messages_max;
    if (dledger_as_int(PyTuple_GetItem(origin, 3), 0, INT32_MAX, &alike.fixed_size) < 0 ||
        dledger_as_int(args[3], 0, INT64_MAX, &messages_max) < 0)
        return NULL;
    room = messages_max - room;
    unique_size = (Py_ssize_t)alike.alike_size - alike.before_size - alike.after_size;
    if (unique_size < 0) {
        PyErr_SetString(PyExc_ValueError, "the template is larger than its properties");
        return NULL;
    }
    while (room > 0 && size - start >= FIXED_SIZE) {
        const unsigned char *sent = data + start;
        const char *properties;
        long long body_size = get_i32(sent + 16), total = get_i32(sent);
        PyObject *message;
        int failed;
        if (body_size < 0 || total != HEAD_SIZE + body_size + alike.alike_size ||
            total > size - start)
            break;
        properties = (const char *)sent + HEAD_SIZE + body_size;
        if (memcmp(properties, alike.before, (size_t)alike.before_size) != 0 ||
            memcmp(properties + alike.before_size + unique_size, alike.after,
                   (size_t)alike.after_size) != 0 ||
            memchr(properties + alike.before_size, PAIR_END, (size_t)unique_size) != NULL)
            break;
        message = make_alike(&alike, sent, (Py_ssize_t)body_size, unique_size);
        if (message == NULL)
            return NULL;
        failed = PyList_Append(messages, message);
        Py_DECREF(message);
        if (failed < 0)
            return NULL;
        start += total;
        room--;
    }
    return PyLong_FromLongLong(start);
}

static PyObject *function_of(const char *module_name, const char *name)
{
    PyObject *function, *module = PyImport_ImportModule(module_name);
    if (module == NULL)
        return NULL;
    function = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return function;
}

int dledger_prepare_take_alike(void)
{
    body_crc32 = function_of("isal.isal_zlib", "crc32");
    key_crc32c = body_crc32 == NULL ? NULL : function_of("crc32c", "crc32c");
    crc_mask = key_crc32c == NULL ? NULL : PyLong_FromLong(0x7FFFFFFF);
    return crc_mask == NULL ? -1 : 0;
}
