/* exec_output.c - what a process wrote to standard error, as a failure.
 *
 * The tail keeps up to twice its size and moves the end to the front when it is full, so that adding costs one
 * copy per byte in the long run, however small the pieces. The lines are looked at once, from first to last;
 * later ones win. Nothing fails; bytes are not judged here (answer_text.h replaces what is no UTF-8). Pure; any
 * thread. */
#include "exec_output.h"

void rdv_exec_tail_add(struct rdv_exec_tail *tail, const void *data, size_t size)
{
	const uint8_t *from = data;

	if (size > RDV_EXEC_TAIL) {
		from += size - RDV_EXEC_TAIL;
		size = RDV_EXEC_TAIL;
		tail->size = 0;
		tail->cut = true;
	}
	if (size > sizeof tail->bytes - tail->size) {
		size_t keep = RDV_EXEC_TAIL - size;

		keep = keep < tail->size ? keep : tail->size;
		memmove(tail->bytes, tail->bytes + tail->size - keep, keep);
		tail->size = keep;
		tail->cut = true;
	}
	memcpy(tail->bytes + tail->size, from, size);
	tail->size += size;
}

struct rdv_slice rdv_exec_tail_slice(const struct rdv_exec_tail *tail)
{
	size_t size = tail->size < RDV_EXEC_TAIL ? tail->size : RDV_EXEC_TAIL;

	return rdv_slice(tail->bytes + tail->size - size, size);
}

static bool is_letter(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name_byte(uint8_t c)
{
	return is_letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '$' || c == '-';
}

/* Length of the class name at the start of a line, 0 if there is none. */
static size_t name_length(struct rdv_slice line)
{
	size_t i = 0;

	if (!line.size || !is_letter(line.data[0]))
		return 0;
	while (i < line.size) {
		if (is_name_byte(line.data[i]))
			i++;
		else if (line.size - i > 2 && line.data[i] == ':' && line.data[i + 1] == ':' &&
			 is_letter(line.data[i + 2]))
			i += 2;
		else
			break;
	}
	return i;
}

/* "class: text", or "class" alone where that is enough. */
static struct rdv_slice class_of(struct rdv_slice line, bool alone_is_enough)
{
	size_t length = name_length(line);

	if (length && alone_is_enough && length == line.size)
		return line;
	if (length && line.size > length + 2 && line.data[length] == ':' && line.data[length + 1] == ' ')
		return rdv_slice(line.data, length);
	return rdv_slice(NULL, 0);
}

static void look_at_line(struct rdv_slice line, struct rdv_failure *out)
{
	static const char cause[] = "Caused by: ";
	const size_t skip = sizeof cause - 1;
	struct rdv_slice found;

	if (line.size && line.data[line.size - 1] == '\r')
		line.size--;
	if (line.size > skip && memcmp(line.data, cause, skip) == 0) {
		found = class_of(rdv_slice(line.data + skip, line.size - skip), true);
		out->root_class = found.size ? found : out->root_class;
	} else {
		found = class_of(line, false);
		out->class = found.size ? found : out->class;
	}
}

static struct rdv_slice last_bytes(struct rdv_slice s, size_t size)
{
	if (s.size <= size)
		return s;
	s = rdv_slice(s.data + s.size - size, size);
	for (int i = 0; i < 3 && s.size && (s.data[0] & 0xc0) == 0x80; i++) /* the rest of a character that was cut */
		s = rdv_slice(s.data + 1, s.size - 1);
	return s;
}

void rdv_exec_output(struct rdv_slice output, struct rdv_failure *out)
{
	struct rdv_slice rest = output;
	size_t lines = 0;

	while (rest.size) {
		const uint8_t *end = memchr(rest.data, '\n', rest.size);
		size_t length = end ? (size_t)(end - rest.data) : rest.size;

		look_at_line(rdv_slice(rest.data, length), out);
		lines++;
		length += end != NULL;
		rest = rdv_slice(rest.data + length, rest.size - length);
	}
	while (output.size && (output.data[output.size - 1] == '\n' || output.data[output.size - 1] == '\r'))
		output.size--;
	out->text = last_bytes(output, RDV_EXEC_TEXT);
	if (lines > 1)
		out->stack = output;
}
