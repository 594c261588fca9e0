/* The twin of `pack_runs_in_python` in store/message/batch.py. */

#include "compiled.h"

#define HEAD_SIZE 88 /* of a record, from TOTALSIZE to the length of the body */
#define RECORD_MAGIC 0xDAA320A7u
#define ROW_SIZE 20 /* of a ConsumeQueue */
#define KEY_ROW_SIZE 16
#define RUN_HEADER_SIZE 17
#define COPIED_MAX (32 << 10) /* bytes of a record, on average; larger ones are not copied here */

enum { TOPIC, QUEUE_ID, FIRST_OFFSET, MESSAGES, RUN_FIELDS }; /* of a QueueRun */

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

/* What is being packed: where each next part goes, and what the records of a run share. */
typedef struct {
    const char *topic;
    PyObject *stored;
    Py_ssize_t topic_size;
    long long queue_id, offset, position, store_seconds;
    unsigned char *record, *records_end, *row, *rows_end, *key, *keys_end, *header, *headers_end;
} Batch;

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

static int pack_message(Batch *batch, PyObject *message)
{
    long long size, flag, crc, code, hash;
    Piece body, properties;
    PyObject *hashes;
    Py_ssize_t keys;
    unsigned char *to = batch->record;

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
    if (properties.size > UINT16_MAX || body.size > INT32_MAX || batch->row == batch->rows_end ||
        size != (long long)HEAD_SIZE + body.size + 1 + batch->topic_size + 2 + properties.size ||
        size > batch->records_end - to) {
        PyErr_Format(PyExc_ValueError, "a record of %lld bytes has a body of %zd and properties "
                     "of %zd", size, body.size, properties.size);
        goto failed;
    }
    put_u32(to, (uint32_t)size);
    put_u32(to + 4, RECORD_MAGIC);
    put_u32(to + 8, (uint32_t)crc);
    put_u32(to + 12, (uint32_t)batch->queue_id);
    put_u32(to + 16, (uint32_t)flag);
    put_u64(to + 20, (uint64_t)batch->offset);
    put_u64(to + 28, (uint64_t)batch->position);
    if (put_bytes(to + 36, PyTuple_GetItem(message, BORN), 20) < 0 ||
        put_bytes(to + 56, batch->stored, 16) < 0 ||
        put_bytes(to + 72, PyTuple_GetItem(message, TRIED), 12) < 0)
        goto failed;
    put_u32(to + 84, (uint32_t)body.size);
    to += HEAD_SIZE;
    memcpy(to, body.data, (size_t)body.size);
    to += body.size;
    *to++ = (unsigned char)batch->topic_size;
    memcpy(to, batch->topic, (size_t)batch->topic_size);
    to += batch->topic_size;
    *to++ = (unsigned char)(properties.size >> 8);
    *to++ = (unsigned char)properties.size;
    memcpy(to, properties.data, (size_t)properties.size);
    release_piece(&body);
    release_piece(&properties);

    put_u64(batch->row, (uint64_t)batch->position);
    put_u32(batch->row + 8, (uint32_t)size);
    put_u64(batch->row + 12, (uint64_t)code);

    hashes = PyTuple_GetItem(message, KEY_HASHES);
    keys = PyTuple_Size(hashes);
    if (keys < 0)
        return -1;
    if (keys > (batch->keys_end - batch->key) / KEY_ROW_SIZE) {
        PyErr_SetString(PyExc_ValueError, "more keys than were counted");
        return -1;
    }
    for (Py_ssize_t each = 0; each < keys; each++, batch->key += KEY_ROW_SIZE) {
        if (dledger_as_int(PyTuple_GetItem(hashes, each), 0, UINT32_MAX, &hash) < 0)
            return -1;
        put_u32(batch->key, (uint32_t)hash);
        put_u64(batch->key + 4, (uint64_t)batch->position);
        put_u32(batch->key + 12, (uint32_t)batch->store_seconds);
    }
    batch->record += size;
    batch->row += ROW_SIZE;
    batch->position += size;
    batch->offset++;
    return 0;

failed:
    release_piece(&body);
    release_piece(&properties);
    return -1;
}

/* Takes the topic and the numbers of a run; its messages, borrowed, or NULL with an error. */
static PyObject *take_run(Batch *batch, PyObject *run)
{
    PyObject *topic, *messages;
    Py_ssize_t count;
    if (!PyTuple_Check(run) || PyTuple_Size(run) != RUN_FIELDS ||
        !PyUnicode_Check(topic = PyTuple_GetItem(run, TOPIC)) ||
        !PyList_Check(messages = PyTuple_GetItem(run, MESSAGES))) {
        PyErr_SetString(PyExc_TypeError, "not a QueueRun");
        return NULL;
    }
    count = PyList_Size(messages);
    batch->topic = PyUnicode_AsUTF8AndSize(topic, &batch->topic_size);
    if (batch->topic == NULL ||
        dledger_as_int(PyTuple_GetItem(run, QUEUE_ID), INT32_MIN, INT32_MAX, &batch->queue_id) < 0 ||
        dledger_as_int(PyTuple_GetItem(run, FIRST_OFFSET), INT64_MIN, INT64_MAX - count,
                       &batch->offset) < 0)
        return NULL;
    if (batch->topic_size > UINT8_MAX || count > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "a run of %zd messages, its topic of %zd bytes", count,
                     batch->topic_size);
        return NULL;
    }
    return messages;
}

/* The sizes of all parts. */
typedef struct {
    Py_ssize_t count, records, keys, headers;
} Sizes;

static int measure_messages(PyObject *messages, Sizes *sizes)
{
    Py_ssize_t count = PyList_Size(messages);
    if (count > PY_SSIZE_T_MAX / ROW_SIZE - sizes->count) {
        PyErr_SetString(PyExc_OverflowError, "too many messages");
        return -1;
    }
    sizes->count += count;
    for (Py_ssize_t each = 0; each < count; each++) {
        long long size;
        Py_ssize_t hashes;
        PyObject *message = PyList_GetItem(messages, each);
        if (!is_message(message) ||
            dledger_as_int(PyTuple_GetItem(message, SIZE), 0, INT32_MAX, &size) < 0)
            return -1;
        hashes = PyTuple_Size(PyTuple_GetItem(message, KEY_HASHES));
        if (size > PY_SSIZE_T_MAX - sizes->records ||
            hashes > PY_SSIZE_T_MAX / KEY_ROW_SIZE - sizes->keys) {
            PyErr_SetString(PyExc_OverflowError, "the messages are too large");
            return -1;
        }
        sizes->records += (Py_ssize_t)size;
        sizes->keys += hashes;
    }
    return 0;
}

static int measure(Batch *batch, PyObject *runs, Sizes *sizes)
{
    memset(sizes, 0, sizeof *sizes);
    for (Py_ssize_t each = 0; each < PyList_Size(runs); each++) {
        PyObject *messages = take_run(batch, PyList_GetItem(runs, each));
        if (messages == NULL || measure_messages(messages, sizes) < 0)
            return -1;
        if (sizes->headers > PY_SSIZE_T_MAX - RUN_HEADER_SIZE - batch->topic_size) {
            PyErr_SetString(PyExc_OverflowError, "too many runs");
            return -1;
        }
        sizes->headers += RUN_HEADER_SIZE + batch->topic_size;
    }
    return 0;
}

static int pack_one_run(Batch *batch, PyObject *run)
{
    PyObject *messages = take_run(batch, run);
    Py_ssize_t count;
    if (messages == NULL)
        return -1;
    count = PyList_Size(messages);
    if (batch->headers_end - batch->header < RUN_HEADER_SIZE + batch->topic_size) {
        PyErr_SetString(PyExc_ValueError, "the runs changed meanwhile");
        return -1;
    }
    put_u64(batch->header, (uint64_t)batch->offset);
    put_u32(batch->header + 8, (uint32_t)batch->queue_id);
    put_u32(batch->header + 12, (uint32_t)count);
    batch->header[16] = (unsigned char)batch->topic_size;
    memcpy(batch->header + RUN_HEADER_SIZE, batch->topic, (size_t)batch->topic_size);
    batch->header += RUN_HEADER_SIZE + batch->topic_size;
    for (Py_ssize_t each = 0; each < count; each++) {
        PyObject *message = PyList_GetItem(messages, each);
        int failed;
        Py_XINCREF(message); /* a buffer of another type may run code that empties the list */
        failed = pack_message(batch, message) < 0;
        Py_XDECREF(message);
        if (failed)
            return -1;
    }
    return 0;
}

PyObject *dledger_pack_runs(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Batch batch;
    Sizes sizes;
    PyObject *runs, *records, *rows, *key_rows, *headers, *result = NULL;

    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "pack_runs takes 4 arguments");
        return NULL;
    }
    runs = args[0];
    batch.stored = args[2];
    if (!PyList_Check(runs)) {
        PyErr_SetString(PyExc_TypeError, "the runs are not a list");
        return NULL;
    }
    if (measure(&batch, runs, &sizes) < 0 ||
        dledger_as_int(args[1], INT64_MIN, INT64_MAX - sizes.records, &batch.position) < 0 ||
        dledger_as_int(args[3], 0, sizes.keys > 0 ? UINT32_MAX : INT64_MAX,
                       &batch.store_seconds) < 0)
        return NULL;
    if (sizes.count > 0 && sizes.records / sizes.count > COPIED_MAX)
        Py_RETURN_NONE;
    records = PyBytes_FromStringAndSize(NULL, sizes.records);
    rows = PyBytes_FromStringAndSize(NULL, sizes.count * ROW_SIZE);
    key_rows = PyBytes_FromStringAndSize(NULL, sizes.keys * KEY_ROW_SIZE);
    headers = PyBytes_FromStringAndSize(NULL, sizes.headers);
    if (records == NULL || rows == NULL || key_rows == NULL || headers == NULL)
        goto end;
    batch.record = (unsigned char *)PyBytes_AsString(records);
    batch.records_end = batch.record + sizes.records;
    batch.row = (unsigned char *)PyBytes_AsString(rows);
    batch.rows_end = batch.row + sizes.count * ROW_SIZE;
    batch.key = (unsigned char *)PyBytes_AsString(key_rows);
    batch.keys_end = batch.key + sizes.keys * KEY_ROW_SIZE;
    batch.header = (unsigned char *)PyBytes_AsString(headers);
    batch.headers_end = batch.header + sizes.headers;
    for (Py_ssize_t each = 0; each < PyList_Size(runs); each++) {
        PyObject *run = PyList_GetItem(runs, each);
        int failed;
        Py_XINCREF(run);
        failed = pack_one_run(&batch, run) < 0;
        Py_XDECREF(run);
        if (failed)
            goto end;
    }
    if (batch.record != batch.records_end || batch.key != batch.keys_end ||
        batch.row != batch.rows_end || batch.header != batch.headers_end) {
        PyErr_SetString(PyExc_ValueError, "the messages changed meanwhile");
        goto end;
    }
    result = Py_BuildValue("[O]OOO", records, rows, key_rows, headers);
end:
    Py_XDECREF(records);
    Py_XDECREF(rows);
    Py_XDECREF(key_rows);
    Py_XDECREF(headers);
    return result;
}
