/* raw_log.h - the raw limit that embedded figures are compared with: one write and one fdatasync for every 1,000
 * records of the same bytes, into files that were filled with zeros before. Returns records per second. */
#ifndef BENCH_RAW_LOG_H
#define BENCH_RAW_LOG_H
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline double bench_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void bench_print(const char *name, double value, const char *unit)
{
	printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n", name, value, unit);
	fflush(stdout);
}

static inline double bench_raw_log(const char *dir, size_t record, double seconds)
{
	const size_t segment = 64u << 20, batch = 1000 * record;
	char *bytes = malloc(segment), path[512];
	int fd[2];
	double start;
	uint64_t count = 0;
	size_t at = 0;
	int file = 0;

	if (!bytes)
		abort();
	memset(bytes, 0, segment);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/raw-%d", dir, i);
		fd[i] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
		if (fd[i] < 0 || pwrite(fd[i], bytes, segment, 0) != (ssize_t)segment || fdatasync(fd[i]))
			abort();
	}
	for (size_t i = 0; i < segment; i++)
		bytes[i] = (char)(i * 2654435761u >> 24);
	start = bench_seconds();
	while (bench_seconds() - start < seconds) {
		if (at + batch > segment) {
			at = 0;
			file = !file;
		}
		if (pwrite(fd[file], bytes + at, batch, (off_t)at) != (ssize_t)batch || fdatasync(fd[file]))
			abort();
		at += batch;
		count += 1000;
	}
	seconds = bench_seconds() - start;
	for (int i = 0; i < 2; i++) {
		close(fd[i]);
		snprintf(path, sizeof path, "%s/raw-%d", dir, i);
		unlink(path);
	}
	free(bytes);
	return (double)count / seconds;
}
#endif
