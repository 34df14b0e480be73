/* embed.c - build tool: compresses a file with zstd and writes it as a C array.
 *
 *	embed IN OUT.c
 *
 * OUT.c defines rdv_demo_data[] and rdv_demo_data_size; src/app/demo_data.c reads them. Not part of the program. */
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

/* The whole file, owned by the caller; exits if it cannot be read. */
static unsigned char *read_file(const char *name, size_t *size)
{
	FILE *f = fopen(name, "rb");
	long end = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
	unsigned char *bytes = end > 0 ? malloc((size_t)end) : NULL;

	if (!bytes || fseek(f, 0, SEEK_SET) != 0 || fread(bytes, 1, (size_t)end, f) != (size_t)end) {
		perror(name);
		exit(1);
	}
	fclose(f);
	*size = (size_t)end;
	return bytes;
}

static int write_array(const char *name, const unsigned char *bytes, size_t size)
{
	FILE *f = fopen(name, "w");

	if (!f)
		return perror(name), 1;
	fputs("/* Generated: the demo's payloads, compressed. */\n#include <stddef.h>\n"
	      "extern const unsigned char rdv_demo_data[];\nextern const size_t rdv_demo_data_size;\n"
	      "const unsigned char rdv_demo_data[] = {",
	      f);
	for (size_t i = 0; i < size; i++)
		fprintf(f, "%s%u,", i % 32 ? "" : "\n", bytes[i]);
	fprintf(f, "\n};\nconst size_t rdv_demo_data_size = %zu;\n", size);
	if (ferror(f) | fclose(f))
		return perror(name), 1;
	return 0;
}

int main(int argc, char **argv)
{
	size_t size;

	if (argc != 3)
		return fputs("usage: embed IN OUT.c\n", stderr), 2;
	unsigned char *bytes = read_file(argv[1], &size);
	size_t room = ZSTD_compressBound(size);
	unsigned char *packed = malloc(room);
	size_t packed_size = packed ? ZSTD_compress(packed, room, bytes, size, 19) : 0;
	int code = 1;

	if (packed && !ZSTD_isError(packed_size))
		code = write_array(argv[2], packed, packed_size);
	free(packed);
	free(bytes);
	return code;
}
