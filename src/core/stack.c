/* stack.c - the innermost frame of the user's own code in a stack trace, and the root cause's class.
 *
 * A trace is read line by line. A table of forms (Java and C#, JavaScript, Python, Ruby, PHP, Go, Rust, gdb) gives a
 * line's function and its file, if it is a frame. Frames of runtimes and frameworks, known by the beginning of their
 * names or by folders, are passed over. Most traces begin with the innermost frame; Python's end with it. Where a Java
 * trace has causes, the last cause's frames count, so that one wrapper over two causes is two frames. Line numbers and
 * folders are not part of a frame, so another build of the same code gives the same. Bounded by the stack's size. Pure;
 * any thread. */
#include "normalise.h"

struct frame {
	struct rdv_slice name, file;
};

static bool starts(struct rdv_slice s, const char *text)
{
	size_t n = strlen(text);

	return s.size >= n && memcmp(s.data, text, n) == 0;
}

static struct rdv_slice skip(struct rdv_slice s, size_t n)
{
	return rdv_slice(s.data + n, s.size - n);
}

/* Position of `text` in s, or s.size. */
static size_t find(struct rdv_slice s, const char *text)
{
	size_t n = strlen(text);
	const uint8_t *at = s.data && n <= s.size ? memmem(s.data, s.size, text, n) : NULL;

	return at ? (size_t)(at - s.data) : s.size;
}

static struct rdv_slice trim(struct rdv_slice s)
{
	while (s.size && (s.data[0] == ' ' || s.data[0] == '\t'))
		s = skip(s, 1);
	while (s.size && (s.data[s.size - 1] <= ' '))
		s.size--;
	return s;
}

/* "at pkg.Class.method(File.java:1)", "at fn (/a/b.js:1:2)", "at Ns.Class.Fn() in /a/b.cs:line 3" */
static bool frame_at(struct rdv_slice line, struct frame *f)
{
	size_t open, blank, module;

	if (!starts(line, "at "))
		return false;
	line = trim(skip(line, 3));
	open = find(line, "(");
	blank = find(line, " (");
	f->name = trim(rdv_slice(line.data, open));
	f->file = open < line.size ? skip(line, open + 1) : line;
	if (starts(f->name, "async "))
		f->name = skip(f->name, 6);
	/* Java's module or class loader: "java.base/", "app//". A JavaScript frame without a name is a file. */
	module = find(f->name, "/");
	if (module < f->name.size && blank == line.size && open < line.size)
		f->name = skip(f->name,
			       module + 1 < f->name.size && f->name.data[module + 1] == '/' ? module + 2 : module + 1);
	return true;
}

/* File "/a/b.py", line 1, in fn */
static bool frame_python(struct rdv_slice line, struct frame *f)
{
	size_t in;

	if (!starts(line, "File \""))
		return false;
	line = skip(line, 6);
	f->file = rdv_slice(line.data, find(line, "\""));
	in = find(line, ", in ");
	f->name = in < line.size ? trim(skip(line, in + 5)) : rdv_slice(NULL, 0);
	return true;
}

/* /a/b.rb:1:in `fn' */
static bool frame_ruby(struct rdv_slice line, struct frame *f)
{
	size_t in = find(line, ":in `");

	if (in == line.size)
		return false;
	if (starts(line, "from "))
		line = skip(line, 5), in -= 5;
	f->file = rdv_slice(line.data, in);
	f->name = skip(line, in + 5);
	f->name.size = find(f->name, "'");
	return true;
}

/* #0 /a/b.php(27): Class->fn()   or gdb's   #0  0x0 in fn (a=1) at b.c:3   or Rust's   3: crate::fn */
static bool frame_numbered(struct rdv_slice line, struct frame *f)
{
	size_t n = 0, colon, in;
	bool hash = starts(line, "#");

	if (hash)
		line = skip(line, 1);
	while (n < line.size && line.data[n] >= '0' && line.data[n] <= '9')
		n++;
	if (!n || n > 4 || (!hash && !starts(skip(line, n), ": ")))
		return false;
	line = trim(skip(line, hash ? n : n + 1));
	f->file = line;
	f->name = line;
	colon = find(line, "): ");
	in = find(line, " in ");
	if (hash && colon < line.size)
		f->name = skip(line, colon + 3);
	else if (hash && starts(line, "0x") && in < line.size)
		f->name = skip(line, in + 4);
	f->name = trim(rdv_slice(f->name.data, find(f->name, "(")));
	return f->name.size > 0;
}

/* pkg.fn(0x1, ...) on a line whose next is an indented file: Go's. */
static bool frame_go(struct rdv_slice line, struct rdv_slice next, struct frame *f)
{
	size_t open = find(line, "("), dot = find(line, ".");

	if (!starts(next, "\t/") || open == line.size || dot > open || starts(line, "goroutine "))
		return false;
	f->file = trim(next);
	while (open + 1 < line.size && line.data[open + 1] == '*') /* method of a pointer: pkg.(*T).fn(...) */
		open += 1 + find(skip(line, open + 1), "(");
	f->name = rdv_slice(line.data, open);
	return true;
}

/* Beginnings of functions, and parts of files, that are not the user's. */
static bool is_foreign(const struct frame *f)
{
	static const char *const names[] = {"java.",
					    "javax.",
					    "jdk.",
					    "sun.",
					    "com.sun.",
					    "jakarta.",
					    "kotlin.",
					    "kotlinx.",
					    "scala.",
					    "org.springframework.",
					    "org.apache.",
					    "org.hibernate.",
					    "org.postgresql.",
					    "com.fasterxml.",
					    "com.mysql.",
					    "com.zaxxer.",
					    "io.netty.",
					    "reactor.",
					    "okhttp3.",
					    "org.junit.",
					    "com.google.",
					    "org.eclipse.",
					    "io.micrometer.",
					    "redis.clients.",
					    "io.lettuce.",
					    "System.",
					    "Microsoft.",
					    "std::",
					    "core::",
					    "alloc::",
					    "<alloc::",
					    "<core::",
					    "<std::",
					    "rust_begin_unwind",
					    "__rustc",
					    "rust_panic",
					    "__libc_",
					    "_start",
					    "raise",
					    "abort",
					    "__assert",
					    "runtime.",
					    "net/http.",
					    "database/sql.",
					    "encoding/",
					    "reflect.",
					    "panic",
					    "testing.",
					    "main.main.func",
					    "serde::",
					    "serde_json::",
					    "tokio::"};
	static const char *const files[] = {
		"node:",        "node_modules",  "<anonymous>",   "site-packages", "dist-packages",      "/lib/python",
		"<frozen ",     "/usr/lib/ruby", "/gems/",        "/vendor/",      "/usr/local/go/",     "/usr/lib/go",
		"/go/pkg/mod/", "/rustc/",       "Native Method", "<internal:",    "[internal function]"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (starts(f->name, names[i]))
			return true;
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		if (find(f->file, files[i]) < f->file.size)
			return true;
	return f->name.size == 0 || rdv_slice_is(f->name, "<module>") || rdv_slice_is(f->name, "{main}");
}

static struct rdv_slice take_line(struct rdv_slice *rest)
{
	size_t n = find(*rest, "\n");
	struct rdv_slice line = rdv_slice(rest->data, n);

	*rest = skip(*rest, n < rest->size ? n + 1 : n);
	return line;
}

struct rdv_slice rdv_stack_frame(struct rdv_slice stack)
{
	struct rdv_slice rest = stack, found = {NULL, 0};
	bool closed = false; /* the innermost frame of this part was found */

	while (rest.size) {
		struct rdv_slice raw = take_line(&rest), line = trim(raw), after = rest, next = take_line(&after);
		struct frame f = {0};

		if (starts(line, "Caused by:")) {
			closed = false;
			continue;
		}
		if (frame_python(line, &f)) {
			if (!is_foreign(&f))
				found = f.name; /* the last one counts */
			closed = true;
			continue;
		}
		if (closed || !(frame_at(line, &f) || frame_ruby(line, &f) || frame_numbered(line, &f) ||
				frame_go(raw, next, &f)))
			continue;
		if (is_foreign(&f))
			continue;
		found = f.name;
		closed = true;
	}
	return found;
}

struct rdv_slice rdv_stack_root_class(struct rdv_slice stack)
{
	static const char cause[] = "Caused by: ";
	struct rdv_slice rest = stack, found = {NULL, 0};

	while (rest.size) {
		struct rdv_slice line = trim(take_line(&rest));
		if (!starts(line, cause))
			continue;
		found = skip(line, sizeof cause - 1);
		found.size = find(found, ":");
	}
	return found;
}
