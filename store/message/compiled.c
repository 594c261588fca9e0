/* The two loops over the messages of an entry, compiled.
 *
 * Each function does exactly what its twin in Python does, which is used where this module is not
 * built: `pack_run` that of store/message/batch.py, `take_alike` that of
 * broker/ingest/batch_body.py. The layouts stand there. tests/store/message/test_compiled.py and
 * tests/broker/ingest/test_compiled_batch_body.py compare the twins.
 *
 * Rules: no byte is read or written before its bounds are checked, and no code of Python runs while
 * pointers into buffers are held. Only the limited API is used, so one build serves CPython 3.11
 * and every later version.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define HEAD_SIZE 88        /* of a record, from TOTALSIZE to the length of the body */
#define RECORD_MAGIC 0xDAA320A7u
#define ROW_SIZE 20         /* of a ConsumeQueue */
#define KEY_ROW_SIZE 16
#define SENT_HEAD_SIZE 20   /* of a message in a batch request, before the body */
#define SENT_FIXED_SIZE 22  /* with the size of the properties */
#define PAIR_END 2

/* The fields of a PendingMessage. */
enum { SIZE, BODY, PROPERTIES, FLAG, BORN, TRIED, BODY_CRC, TAGS_CODE, KEY_HASHES, FIELDS };

static PyObject *body_crc32;  /* isal's: the processor's own instructions */
static PyObject *key_crc32c;
static PyObject *crc_mask;

static void put_u32(unsigned char *to, uint32_t value)
{
    to[0] = (unsigned char)(value >> 24);
    to[1] = (unsigned char)(value >> 16);
    to[2] = (unsigned char)(value >> 8);
    to[3] = (unsigned char)value;
}

static void put_u64(unsigned char *to, uint64_t value)
{
    put_u32(to, (uint32_t)(value >> 32));
    put_u32(to + 4, (uint32_t)value);
}

static int32_t get_i32(const unsigned char *from)
{
    return (int32_t)((uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 |
                     (uint32_t)from[3]);
}

/* An int from `low` to `high`; sets OverflowError for any other. */
static int as_int(PyObject *value, long long low, long long high, long long *result)
{
    *result = PyLong_AsLongLong(value);
    if (*result == -1 && PyErr_Occurred())
        return -1;
    if (*result < low || *result > high) {
        PyErr_Format(PyExc_OverflowError, "%lld is not within %lld and %lld", *result, low, high);
        return -1;
    }
    return 0;
}

/* Copies exactly `size` bytes of a bytes object. */
static int put_bytes(unsigned char *to, PyObject *value, Py_ssize_t size)
{
    char *data;
    Py_ssize_t found;
    if (PyBytes_AsStringAndSize(value, &data, &found) < 0)
        return -1;
    if (found != size) {
        PyErr_Format(PyExc_ValueError, "%zd bytes where a record has %zd", found, size);
        return -1;
    }
    memcpy(to, data, (size_t)size);
    return 0;
}

/* Bytes of any kind. `view` is released if it was taken. */
typedef struct {
    const char *data;
    Py_ssize_t size;
    Py_buffer view;
    int taken;
} Piece;

static int take_piece(PyObject *value, Piece *piece)
{
    piece->taken = 0;
    if (PyBytes_Check(value)) {
        char *data;
        if (PyBytes_AsStringAndSize(value, &data, &piece->size) < 0)
            return -1;
        piece->data = data;
        return 0;
    }
    if (PyObject_GetBuffer(value, &piece->view, PyBUF_SIMPLE) < 0)
        return -1;
    piece->taken = 1;
    piece->data = piece->view.buf;
    piece->size = piece->view.len;
    return 0;
}

static void release_piece(Piece *piece)
{
    if (piece->taken)
        PyBuffer_Release(&piece->view);
    piece->taken = 0;
}

/* What the records of a run share, and where the next one goes. */
typedef struct {
    PyObject *topic_part;
    PyObject *stored;
    Py_ssize_t topic_size;
    long long queue_id, offset, position, store_seconds;
    unsigned char *record, *records_end, *row, *key, *keys_end;
} Run;

/* Sets an error for anything else, also for NULL. */
static int is_message(PyObject *value)
{
    if (value == NULL)
        return 0;
    if (PyTuple_Check(value) && PyTuple_Size(value) == FIELDS &&
        PyTuple_Check(PyTuple_GetItem(value, KEY_HASHES)))
        return 1;
    PyErr_SetString(PyExc_TypeError, "not a PendingMessage");
    return 0;
}

static int pack_message(Run *run, PyObject *message)
{
    long long size, flag, crc, code, hash;
    Piece body, properties;
    PyObject *hashes;
    Py_ssize_t keys, needed;
    unsigned char *to = run->record;

    if (!is_message(message))
        return -1;
    if (as_int(PyTuple_GetItem(message, SIZE), 0, INT32_MAX, &size) < 0 ||
        as_int(PyTuple_GetItem(message, FLAG), INT32_MIN, INT32_MAX, &flag) < 0 ||
        as_int(PyTuple_GetItem(message, BODY_CRC), INT32_MIN, INT32_MAX, &crc) < 0 ||
        as_int(PyTuple_GetItem(message, TAGS_CODE), INT64_MIN, INT64_MAX, &code) < 0)
        return -1;
    if (take_piece(PyTuple_GetItem(message, BODY), &body) < 0)
        return -1;
    if (take_piece(PyTuple_GetItem(message, PROPERTIES), &properties) < 0) {
        release_piece(&body);
        return -1;
    }
    needed = HEAD_SIZE + run->topic_size + 2;
    if (properties.size > UINT16_MAX || body.size > INT32_MAX ||
        size != needed + body.size + properties.size || size > run->records_end - to) {
        PyErr_Format(PyExc_ValueError, "a record of %lld bytes has a body of %zd and properties "
                     "of %zd", size, body.size, properties.size);
        goto failed;
    }
    put_u32(to, (uint32_t)size);
    put_u32(to + 4, RECORD_MAGIC);
    put_u32(to + 8, (uint32_t)crc);
    put_u32(to + 12, (uint32_t)run->queue_id);
    put_u32(to + 16, (uint32_t)flag);
    put_u64(to + 20, (uint64_t)run->offset);
    put_u64(to + 28, (uint64_t)run->position);
    if (put_bytes(to + 36, PyTuple_GetItem(message, BORN), 20) < 0 ||
        put_bytes(to + 56, run->stored, 16) < 0 ||
        put_bytes(to + 72, PyTuple_GetItem(message, TRIED), 12) < 0)
        goto failed;
    put_u32(to + 84, (uint32_t)body.size);
    to += HEAD_SIZE;
    memcpy(to, body.data, (size_t)body.size);
    to += body.size;
    if (put_bytes(to, run->topic_part, run->topic_size) < 0)
        goto failed;
    to += run->topic_size;
    *to++ = (unsigned char)(properties.size >> 8);
    *to++ = (unsigned char)properties.size;
    memcpy(to, properties.data, (size_t)properties.size);
    release_piece(&body);
    release_piece(&properties);

    put_u64(run->row, (uint64_t)run->position);
    put_u32(run->row + 8, (uint32_t)size);
    put_u64(run->row + 12, (uint64_t)code);

    hashes = PyTuple_GetItem(message, KEY_HASHES);
    keys = PyTuple_Size(hashes);
    if (keys < 0)
        return -1;
    if (keys > (run->keys_end - run->key) / KEY_ROW_SIZE) {
        PyErr_SetString(PyExc_ValueError, "more keys than were counted");
        return -1;
    }
    for (Py_ssize_t each = 0; each < keys; each++, run->key += KEY_ROW_SIZE) {
        if (as_int(PyTuple_GetItem(hashes, each), 0, UINT32_MAX, &hash) < 0)
            return -1;
        put_u32(run->key, (uint32_t)hash);
        put_u64(run->key + 4, (uint64_t)run->position);
        put_u32(run->key + 12, (uint32_t)run->store_seconds);
    }
    run->record += size;
    run->row += ROW_SIZE;
    run->position += size;
    run->offset++;
    return 0;

failed:
    release_piece(&body);
    release_piece(&properties);
    return -1;
}

/* The bytes that all records take, and the number of all keys. */
static int measure(PyObject *messages, Py_ssize_t count, Py_ssize_t *bytes, Py_ssize_t *keys)
{
    *bytes = *keys = 0;
    for (Py_ssize_t each = 0; each < count; each++) {
        long long size;
        Py_ssize_t hashes;
        PyObject *message = PyList_GetItem(messages, each);
        if (!is_message(message))
            return -1;
        if (as_int(PyTuple_GetItem(message, SIZE), 0, INT32_MAX, &size) < 0)
            return -1;
        hashes = PyTuple_Size(PyTuple_GetItem(message, KEY_HASHES));
        if (size > PY_SSIZE_T_MAX - *bytes || hashes > PY_SSIZE_T_MAX / KEY_ROW_SIZE - *keys) {
            PyErr_SetString(PyExc_OverflowError, "the messages are too large");
            return -1;
        }
        *bytes += (Py_ssize_t)size;
        *keys += hashes;
    }
    return 0;
}

PyDoc_STRVAR(pack_run_doc,
"pack_run(messages, topic_part, queue_id, first_offset, position, stored, store_seconds)\n--\n\n"
"The records of a run in a list, their rows and their key rows; see store/message/batch.py.");

static PyObject *pack_run(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Run run;
    PyObject *messages, *records, *rows, *key_rows, *result = NULL;
    Py_ssize_t messages_count, bytes, keys;

    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "pack_run takes 7 arguments");
        return NULL;
    }
    messages = args[0];
    run.topic_part = args[1];
    run.stored = args[5];
    if (!PyList_Check(messages)) {
        PyErr_SetString(PyExc_TypeError, "the messages are not a list");
        return NULL;
    }
    messages_count = PyList_Size(messages);
    run.topic_size = PyBytes_Size(run.topic_part);
    if (run.topic_size < 0)
        return NULL;
    if (as_int(args[2], INT32_MIN, INT32_MAX, &run.queue_id) < 0 ||
        measure(messages, messages_count, &bytes, &keys) < 0 ||
        as_int(args[3], INT64_MIN, INT64_MAX - messages_count, &run.offset) < 0 ||
        as_int(args[4], INT64_MIN, INT64_MAX - bytes, &run.position) < 0 ||
        as_int(args[6], 0, keys > 0 ? UINT32_MAX : INT64_MAX, &run.store_seconds) < 0)
        return NULL;
    if (messages_count > PY_SSIZE_T_MAX / ROW_SIZE) {
        PyErr_SetString(PyExc_OverflowError, "too many messages");
        return NULL;
    }
    records = PyBytes_FromStringAndSize(NULL, bytes);
    rows = PyBytes_FromStringAndSize(NULL, messages_count * ROW_SIZE);
    key_rows = PyBytes_FromStringAndSize(NULL, keys * KEY_ROW_SIZE);
    if (records == NULL || rows == NULL || key_rows == NULL)
        goto end;
    run.record = (unsigned char *)PyBytes_AsString(records);
    run.records_end = run.record + bytes;
    run.row = (unsigned char *)PyBytes_AsString(rows);
    run.key = (unsigned char *)PyBytes_AsString(key_rows);
    run.keys_end = run.key + keys * KEY_ROW_SIZE;
    for (Py_ssize_t each = 0; each < messages_count; each++) {
        if (pack_message(&run, PyList_GetItem(messages, each)) < 0)
            goto end;
    }
    result = Py_BuildValue("[O]OO", records, rows, key_rows);
end:
    Py_XDECREF(records);
    Py_XDECREF(rows);
    Py_XDECREF(key_rows);
    return result;
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
    const char *body_start = (const char *)sent + SENT_HEAD_SIZE;
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
    if (as_int(PyTuple_GetItem(template, 0), 2, UINT16_MAX + 2, &alike->alike_size) < 0 ||
        as_int(PyTuple_GetItem(template, 7), 0, INT32_MAX, &alike->stored_size) < 0)
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

PyDoc_STRVAR(take_alike_doc,
"take_alike(messages, data, start, messages_max, origin, template, message_type)\n--\n\n"
"Adds the messages that are alike; where the others begin. See broker/ingest/batch_body.py.");

static PyObject *take_alike(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
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
    if (as_int(args[2], 0, size, &start) < 0 || read_template(args[5], &alike) < 0)
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
    if (as_int(PyTuple_GetItem(origin, 3), 0, INT32_MAX, &alike.fixed_size) < 0 ||
        as_int(args[3], 0, INT64_MAX, &messages_max) < 0)
        return NULL;
    room = messages_max - room;
    unique_size = (Py_ssize_t)alike.alike_size - alike.before_size - alike.after_size;
    if (unique_size < 0) {
        PyErr_SetString(PyExc_ValueError, "the template is larger than its properties");
        return NULL;
    }
    while (room > 0 && size - start >= SENT_FIXED_SIZE) {
        const unsigned char *sent = data + start;
        const char *properties;
        long long body_size = get_i32(sent + 16), total = get_i32(sent);
        PyObject *message;
        int failed;
        if (body_size < 0 || total != SENT_HEAD_SIZE + body_size + alike.alike_size ||
            total > size - start)
            break;
        properties = (const char *)sent + SENT_HEAD_SIZE + body_size;
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

static PyMethodDef methods[] = {
    {"pack_run", (PyCFunction)(void (*)(void))pack_run, METH_FASTCALL, pack_run_doc},
    {"take_alike", (PyCFunction)(void (*)(void))take_alike, METH_FASTCALL, take_alike_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "compiled", "Compiled twins of hot loops; see compiled.c.", -1, methods,
    NULL, NULL, NULL, NULL,
};

static PyObject *function_of(const char *module_name, const char *name)
{
    PyObject *function, *module = PyImport_ImportModule(module_name);
    if (module == NULL)
        return NULL;
    function = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return function;
}

PyMODINIT_FUNC PyInit_compiled(void)
{
    body_crc32 = function_of("isal.isal_zlib", "crc32");
    key_crc32c = body_crc32 == NULL ? NULL : function_of("crc32c", "crc32c");
    crc_mask = key_crc32c == NULL ? NULL : PyLong_FromLong(0x7FFFFFFF);
    return crc_mask == NULL ? NULL : PyModule_Create(&definition);
}
