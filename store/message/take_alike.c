/* The twin of `take_alike_in_python` in broker/ingest/batch_body.py. */

#include "compiled.h"

#define HEAD_SIZE 20  /* of a message in a batch request, before the body */
#define FIXED_SIZE 22 /* with the size of the properties */
#define PAIR_END 2

static PyObject *body_crc32; /* isal's: the processor's own instructions */
static PyObject *key_crc32c;
static PyObject *message_type; /* PendingMessage, a named tuple */
static newfunc new_tuple;      /* tuple.__new__ */

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
} Alike;

/* BODYCRC of a record. */
static PyObject *body_crc(PyObject *body)
{
    PyObject *crc = PyObject_CallFunctionObjArgs(body_crc32, body, NULL);
    unsigned long value;
    if (crc == NULL)
        return NULL;
    value = PyLong_AsUnsignedLongMask(crc);
    Py_DECREF(crc);
    return PyErr_Occurred() ? NULL : PyLong_FromUnsignedLong(value & 0x7FFFFFFF);
}

/* The hashes of a message that has no other key. */
static PyObject *key_hashes(const char *unique_start, Py_ssize_t unique_size, PyObject *prefix)
{
    PyObject *hash, *hashes = NULL, *unique = PyBytes_FromStringAndSize(unique_start, unique_size);
    if (unique == NULL)
        return NULL;
    hash = PyObject_CallFunctionObjArgs(key_crc32c, unique, prefix, NULL);
    Py_DECREF(unique);
    if (hash != NULL) {
        hashes = PyTuple_Pack(1, hash);
        Py_DECREF(hash);
    }
    return hashes;
}

/* The stored properties, of those that were sent. */
static PyObject *stored_properties(const Alike *alike, const char *sent, Py_ssize_t unique_size)
{
    Py_ssize_t first = alike->stored_before_size, last = alike->stored_after_size;
    PyObject *properties;
    char *to;
    if (!alike->changed)
        return PyBytes_FromStringAndSize(sent + 2, (Py_ssize_t)alike->alike_size - 2);
    properties = PyBytes_FromStringAndSize(NULL, first + unique_size + last);
    if (properties == NULL)
        return NULL;
    to = PyBytes_AsString(properties);
    memcpy(to, alike->stored_before, (size_t)first);
    memcpy(to + first, sent + alike->before_size, (size_t)unique_size);
    memcpy(to + first + unique_size, alike->stored_after, (size_t)last);
    return properties;
}

/* Puts a field into a tuple under construction, which takes it. Returns -1 if there is none. */
static int put_field(PyObject *fields, Py_ssize_t place, PyObject *value)
{
    return value == NULL ? -1 : PyTuple_SetItem(fields, place, value);
}

/* The message whose body and properties lie there: those are properties of the template. */
static PyObject *make_alike(const Alike *alike, const unsigned char *sent, Py_ssize_t body_size,
                            Py_ssize_t unique_size)
{
    const char *body_start = (const char *)sent + HEAD_SIZE;
    const char *properties = body_start + body_size;
    PyObject *body, *arguments, *message = NULL, *fields = PyTuple_New(FIELDS);

    if (fields == NULL)
        return NULL;
    body = PyBytes_FromStringAndSize(body_start, body_size);
    if (put_field(fields, BODY, body) == 0 &&
        put_field(fields, SIZE,
                  PyLong_FromLongLong(alike->fixed_size + body_size + alike->stored_size)) == 0 &&
        put_field(fields, PROPERTIES, stored_properties(alike, properties, unique_size)) == 0 &&
        put_field(fields, FLAG, PyLong_FromLong(get_i32(sent + 12))) == 0 &&
        put_field(fields, BORN, Py_NewRef(alike->born)) == 0 &&
        put_field(fields, TRIED, Py_NewRef(alike->tried)) == 0 &&
        put_field(fields, BODY_CRC, body_crc(body)) == 0 &&
        put_field(fields, TAGS_CODE, Py_NewRef(alike->code)) == 0 &&
        put_field(fields, KEY_HASHES,
                  key_hashes(properties + alike->before_size, unique_size, alike->prefix)) == 0) {
        arguments = PyTuple_Pack(1, fields);
        if (arguments != NULL) {
            message = new_tuple((PyTypeObject *)message_type, arguments, NULL);
            Py_DECREF(arguments);
        }
    }
    Py_DECREF(fields);
    return message;
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
    long long start, room, messages_max;

    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "take_alike takes 6 arguments");
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
    if (!PyTuple_Check(origin) || PyTuple_Size(origin) != 4) {
        PyErr_SetString(PyExc_TypeError, "not an Origin");
        return NULL;
    }
    alike.born = PyTuple_GetItem(origin, 0);
    alike.tried = PyTuple_GetItem(origin, 1);
    alike.prefix = PyTuple_GetItem(origin, 2);
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

static PyObject *attribute_of(const char *module_name, const char *name)
{
    PyObject *found, *module = PyImport_ImportModule(module_name);
    if (module == NULL)
        return NULL;
    found = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return found;
}

int dledger_prepare_take_alike(void)
{
    body_crc32 = attribute_of("isal.isal_zlib", "crc32");
    key_crc32c = body_crc32 == NULL ? NULL : attribute_of("crc32c", "crc32c");
    message_type = key_crc32c == NULL ? NULL : attribute_of("store.message.record", "PendingMessage");
    if (message_type == NULL)
        return -1;
    new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    if (!PyType_Check(message_type) ||
        !PyType_IsSubtype((PyTypeObject *)message_type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_ImportError, "PendingMessage is no type of tuples");
        return -1;
    }
    return 0;
}
