/* fuzz_letters.c - the bytes of letter segments. The first byte chooses:
 *   even  the rest is a block: every frame that decodes lies inside it and encodes to the same bytes
 *   1     the rest is a whole segment file: opening and checking never crash, whatever it says
 *   3     a good segment of three blocks, damaged by the rest (offset, mask): blocks that pass are exactly those that
 * were written */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include "desk/segment.h"
#include "../tests/log/faulty_files.h"

#define CHECK(c)                                                                                                       \
	do {                                                                                                           \
		if (!(c))                                                                                              \
			abort();                                                                                       \
	} while (0)

static void frames(const uint8_t *data, size_t size)
{
	size_t at = 0, next;
	struct rdv_letter_frame f;
	struct rdv_buffer out;
	rdv_buffer_init(&out, 0);
	while (at < size && rdv_letter_frame_decode(rdv_slice(data, size), at, &f, &next) == REDRIVE_OK) {
		CHECK(next > at && next <= size);
		CHECK(f.envelope.data >= data && f.body.data + f.body.size <= data + size);
		rdv_buffer_clear(&out);
		rdv_letter_frame_encode(&f, &out);
		CHECK(out.size == next - at && memcmp(out.data, data + at, out.size) == 0);
		at = next;
	}
	rdv_buffer_done(&out);
}

static void begin(struct rdv_desk_segment *s, struct rdv_faulty *disk)
{
	memset(s, 0, sizeof *s);
	s->files = &rdv_faulty_ops;
	s->files_ctx = disk;
	s->fd = -1;
}

/* Opens, checks, and reads every block that passed. */
static void open_and_check(struct rdv_faulty *disk, const uint8_t want[3])
{
	struct rdv_desk_segment s;
	struct rdv_desk_segment_scan scan;
	begin(&s, disk);
	enum redrive_status status = rdv_desk_segment_open(&s, strdup("/d/20260921-1.seg"), NULL);
	if ((status == REDRIVE_OK || status == REDRIVE_CORRUPT) &&
	    rdv_desk_segment_check(&s, 0, &scan, NULL) == REDRIVE_OK) {
		CHECK(scan.end >= RDV_DESK_SEGMENT_HEADER);
		for (size_t i = 0; i < scan.count; i++) {
			struct rdv_desk_segment_block head;
			struct rdv_block *raw = NULL;
			CHECK(scan.blocks[i].at < scan.end);
			status = rdv_desk_segment_read(&s, scan.blocks[i].at, &head, &raw);
			CHECK(status != REDRIVE_OK || raw->size == head.raw);
			if (want && status == REDRIVE_OK && head.count) {
				struct rdv_letter_frame f;
				size_t next;
				CHECK(rdv_letter_frame_decode(rdv_block_slice(raw), 0, &f, &next) == REDRIVE_OK);
				CHECK(head.first < 3 && f.body.size == 100 && f.body.data[50] == want[head.first]);
			}
			rdv_block_unref(raw);
		}
		CHECK(rdv_desk_segment_adopt(&s, &scan, NULL) == REDRIVE_OK);
		rdv_desk_segment_scan_done(&scan);
	}
	rdv_desk_segment_done(&s);
}

static void whole_file(const uint8_t *data, size_t size)
{
	struct rdv_faulty *disk = rdv_faulty_new(1);
	struct iovec iov = {(void *)(uintptr_t)data, size};
	CHECK(rdv_faulty_ops.mkdir(disk, "/d", 0700) == 0);
	int fd = rdv_faulty_ops.open(disk, "/d/20260921-1.seg", O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0 && (size == 0 || rdv_faulty_ops.pwritev(disk, fd, &iov, 1, 0) == (ssize_t)size));
	rdv_faulty_ops.close(disk, fd);
	open_and_check(disk, NULL);
	rdv_faulty_free(disk);
}

static void damaged(const uint8_t *data, size_t size)
{
	struct rdv_faulty *disk = rdv_faulty_new(1);
	struct rdv_desk_segment s;
	struct rdv_desk_segment_writer w;
	const struct rdv_desk_segment_head head = {.number = 1, .day = 20260921};
	uint8_t body[100], want[3] = {11, 22, 33};
	CHECK(rdv_faulty_ops.mkdir(disk, "/d", 0700) == 0);
	begin(&s, disk);
	CHECK(rdv_desk_segment_writer_init(&w) == REDRIVE_OK);
	CHECK(rdv_desk_segment_create(&s, strdup("/d/20260921-1.seg"), &head, NULL) == REDRIVE_OK);
	for (int i = 0; i < 3; i++) {
		struct rdv_desk_segment_place place;
		struct rdv_letter_frame f = {rdv_slice("envelope", 8), rdv_slice(body, sizeof body), true};
		memset(body, want[i], sizeof body);
		CHECK(rdv_desk_segment_add(&w, &s, &f, &place) == REDRIVE_OK);
		CHECK(rdv_desk_segment_write(&w, &s, NULL) == REDRIVE_OK);
	}
	uint64_t end = s.end;
	rdv_desk_segment_writer_done(&w);
	rdv_desk_segment_done(&s);
	for (size_t i = 0; i + 2 < size; i += 3) /* the version is left alone: a newer one is not read at all */
		if ((data[i] | data[i + 1] << 8) % end >= 12)
			rdv_faulty_flip(disk, "/d/20260921-1.seg", (uint64_t)(data[i] | data[i + 1] << 8) % end,
					data[i + 2]);
	open_and_check(disk, want);
	rdv_faulty_free(disk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] % 2 == 0)
		frames(data + 1, size - 1);
	else if (data[0] % 4 == 1)
		whole_file(data + 1, size - 1);
	else
		damaged(data + 1, size - 1);
	return 0;
}
