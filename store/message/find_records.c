/* The twin of `find_records_in_python` in store/message/record_places.py. */

#include "compiled.h"

#define HEAD_SIZE 88
#define FIXED_SIZE 91 /* of a record without body, topic and properties */
#define SYS_FLAG_HOST_V6 0x10
#define SYS_FLAG_STORE_HOST_V6 0x20
#define V6_GROWTH 12 /* an IPv6 address is so much longer */

/* A row of the result, as PLACE in record_places.py has it. */
typedef struct {
    int64_t queue_offset, start, body_start, body_end;
    int32_t sys_flag, body_crc;
} Place;

_Static_assert(sizeof(Place) == 40, "a place has 40 bytes without gaps");

static uint32_t get_u32(const unsigned char *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

/* Finds the record at `start`. Returns its size; 0 if none begins there. */
static int64_t find_record(const unsigned char *data, int64_t total, int64_t start, Place *place)
{
    const unsigned char *record = data + start;
    int64_t size, body_size;

    if (total - start < FIXED_SIZE)
        return 0;
    size = (int32_t)get_u32(record);
    place->queue_offset =
        (int64_t)((uint64_t)get_u32(record + 20) << 32 | (uint64_t)get_u32(record + 24));
    place->start = start;
    place->sys_flag = (int32_t)get_u32(record + 36);
    place->body_crc = (int32_t)get_u32(record + 8);
    place->body_start = start + HEAD_SIZE;
    if (place->sys_flag & SYS_FLAG_HOST_V6)
        place->body_start += V6_GROWTH;
    if (place->sys_flag & SYS_FLAG_STORE_HOST_V6)
        place->body_start += V6_GROWTH;
    if (place->body_start > total)
        return 0;
    body_size = (int32_t)get_u32(data + place->body_start - 4);
    place->body_end = place->body_start + body_size;
    if (body_size < 0 || place->body_end >= start + size || start + size > total)
        return 0;
    return size;
}

/* Finds the records from the beginning on and writes their places to `to`, if there is one. Returns
 * their number; `end` becomes the byte behind the last one. */
static Py_ssize_t find_records(const unsigned char *data, int64_t total, char *to, int64_t *end)
{
    Place place;
    Py_ssize_t found = 0;
    int64_t size;

    for (*end = 0; (size = find_record(data, total, *end, &place)) > 0; *end += size, found++) {
        if (to != NULL)
            memcpy(to + found * (Py_ssize_t)sizeof place, &place, sizeof place);
    }
    return found;
}

PyObject *dledger_find_records(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    const unsigned char *data;
    Py_ssize_t total;
    int64_t end;
    PyObject *places, *result = NULL;

    if (count != 1 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "find_records takes bytes");
        return NULL;
    }
    data = (const unsigned char *)PyBytes_AsString(args[0]);
    total = PyBytes_Size(args[0]);
    places = PyBytes_FromStringAndSize(
        NULL, find_records(data, total, NULL, &end) * (Py_ssize_t)sizeof(Place));
    if (places != NULL) {
        find_records(data, total, PyBytes_AsString(places), &end);
        result = Py_BuildValue("NL", places, (long long)end);
    }
    return result;
}
