/* The twin of `pack_run_in_python` in store/message/batch.py. */

#include "compiled.h"

#define HEAD_SIZE 88 /* of a record, from TOTALSIZE to the length of the body */
#define RECORD_MAGIC 0xDAA320A7u
#define ROW_SIZE 20 /* of a ConsumeQueue */
#define KEY_ROW_SIZE 16

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
    Py_ssize_t keys;
    unsigned char *to = run->record;

    if (!is_message(message))
        return -1;
    if (dledger_as_int(PyTuple_GetItem(message, SIZE), 0, INT32_MAX, &size) < 0 ||
        dledger_as_int(PyTuple_GetItem(message, FLAG), INT32_MIN, INT32_MAX, &flag) < 0 ||
        dledger_as_int(PyTuple_GetItem(message, BODY_CRC), INT32_MIN, INT32_MAX, &crc) < 0 ||
        dledger_as_int(PyTuple_GetItem(message, TAGS_CODE), INT64_MIN, INT64_MAX, &code) < 0)
        return -1;
    if (take_piece(PyTuple_GetItem(message, BODY), &body) < 0)
        return -1;
    if (take_piece(PyTuple_GetItem(message, PROPERTIES), &properties) < 0) {
        release_piece(&body);
        return -1;
    }
    if (properties.size > UINT16_MAX || body.size > INT32_MAX || run->topic_size > UINT8_MAX + 1 ||
        size != (long long)HEAD_SIZE + body.size + run->topic_size + 2 + properties.size ||
        size > run->records_end - to) {
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
        if (dledger_as_int(PyTuple_GetItem(hashes, each), 0, UINT32_MAX, &hash) < 0)
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
        if (dledger_as_int(PyTuple_GetItem(message, SIZE), 0, INT32_MAX, &size) < 0)
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

PyObject *dledger_pack_run(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
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
    if (dledger_as_int(args[2], INT32_MIN, INT32_MAX, &run.queue_id) < 0 ||
        measure(messages, messages_count, &bytes, &keys) < 0 ||
        dledger_as_int(args[3], INT64_MIN, INT64_MAX - messages_count, &run.offset) < 0 ||
        dledger_as_int(args[4], INT64_MIN, INT64_MAX - bytes, &run.position) < 0 ||
        dledger_as_int(args[6], 0, keys > 0 ? UINT32_MAX : INT64_MAX, &run.store_seconds) < 0)
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
        PyObject *message = PyList_GetItem(messages, each);
        int failed;
        Py_XINCREF(message); /* a buffer of another type may run code that empties the list */
        failed = pack_message(&run, message) < 0;
        Py_XDECREF(message);
        if (failed)
            goto end;
    }
    if (run.record != run.records_end || run.key != run.keys_end) {
        PyErr_SetString(PyExc_ValueError, "the messages changed meanwhile");
        goto end;
    }
    result = Py_BuildValue("[O]OO", records, rows, key_rows);
end:
    Py_XDECREF(records);
    Py_XDECREF(rows);
    Py_XDECREF(key_rows);
    return result;
}
