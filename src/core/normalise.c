/* normalise.c - an error's text without what changes from message to message.
 *
 * One pass from left to right. At the beginning of each token a table of matchers is asked; the first that takes bytes
 * decides what is written instead:
 *
 *   http://host:81/a?b   http://host<path>      user@host.org       <email>
 *   9b2d...-uuid         <id>                   /srv/app/x.c        <path>
 *   12, 1.5s, 10.0.0.1   <n>                    {"a": 1}            <json>
 *   'value 17'           '<q>'                  'amount'            'amount': names matter
 *
 * Quoted names of columns, fields and constraints tell causes apart, so quotes are masked only when they hold
 * data: digits, or anything behind words such as "value" or "got". HTTP statuses stay. White space becomes one blank,
 * and a mask that follows the same mask is dropped, so that lists of any length look alike. The output is at most 1,000
 * characters. Linear in the input, but for look-aheads bounded by LOOK. Pure; any thread. */
#include "fingerprint.h"
#include "normalise.h"

#define LOOK 512 /* longest token that is looked at as a whole */

struct scan {
	struct rdv_slice in;
	size_t at;
	struct rdv_buffer *out;
	struct rdv_slice word; /* the last word that was written */
	unsigned depth;        /* quotes inside quotes */
	bool json, markup;     /* all of the text is JSON, or HTML or XML */
};

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_hex(uint8_t c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_word(uint8_t c)
{
	return is_digit(c) || is_letter(c) || c == '_' || c == '$';
}

static bool is_space(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_path(uint8_t c)
{
	return is_word(c) || c == '.' || c == '-' || c == '+' || c == '@' || c == '%' || c == '~';
}

/* The byte `ahead` of the position, 0 beyond the end. */
static uint8_t peek(const struct scan *s, size_t ahead)
{
	return s->at + ahead < s->in.size && ahead < LOOK ? s->in.data[s->at + ahead] : 0;
}

static uint8_t before(const struct scan *s)
{
	return s->at ? s->in.data[s->at - 1] : ' ';
}

static bool ends_with(const struct rdv_buffer *b, size_t cut, const char *text, size_t size)
{
	return size && b->size >= cut + size && memcmp(b->data + b->size - cut - size, text, size) == 0;
}

static void mask(struct scan *s, const char *text)
{
	static const char *const separators[] = {", ", ",", " ", ""};
	size_t size = strlen(text);

	for (size_t i = 0; i < 4; i++) {
		size_t cut = strlen(separators[i]);
		if ((!cut || ends_with(s->out, 0, separators[i], cut)) && ends_with(s->out, cut, text, size)) {
			s->out->size -= cut;
			return;
		}
	}
	rdv_buffer_append(s->out, text, size);
}

static size_t match_url(struct scan *s)
{
	size_t n = 0, host, end;

	while (is_letter(peek(s, n)) || is_digit(peek(s, n)) || peek(s, n) == '+')
		n++;
	if (n < 2 || !is_letter(peek(s, 0)) || peek(s, n) != ':' || peek(s, n + 1) != '/' || peek(s, n + 2) != '/')
		return 0;
	n += 3;
	host = n;
	for (end = n; peek(s, end) > ' ' && !strchr("\"'`<>(){}[],;|", peek(s, end)); end++)
		if (peek(s, end) == '@' && n == host)
			host = end + 1;
	rdv_buffer_append(s->out, s->in.data + s->at, n);
	n = host;
	while (is_letter(peek(s, n)) || is_digit(peek(s, n)) || peek(s, n) == '.' || peek(s, n) == '-')
		n++;
	if (is_letter(peek(s, host)) && n <= end)
		rdv_buffer_append(s->out, s->in.data + s->at + host, n - host);
	rdv_buffer_text(s->out, "<path>");
	return end > n ? end : n;
}

static size_t match_email(struct scan *s)
{
	size_t n = 0, at;

	while (is_path(peek(s, n)) && peek(s, n) != '@')
		n++;
	if (!n || peek(s, n) != '@' || !is_letter(peek(s, n + 1)))
		return 0;
	at = n++;
	while (is_word(peek(s, n)) || peek(s, n) == '-' || (peek(s, n) == '.' && is_letter(peek(s, n + 1))))
		n++;
	if (!memchr(s->in.data + s->at + at, '.', n - at))
		return 0;
	mask(s, "<email>");
	return n;
}

static size_t match_uuid(struct scan *s)
{
	static const uint8_t dashes[] = {8, 13, 18, 23};

	for (size_t i = 0, d = 0; i < 36; i++) {
		if (d < 4 && i == dashes[d]) {
			d++;
			if (peek(s, i) != '-')
				return 0;
		} else if (!is_hex(peek(s, i))) {
			return 0;
		}
	}
	if (is_word(peek(s, 36)))
		return 0;
	mask(s, "<id>");
	return 36;
}

/* /a/b, ./a, C:\a\b, and relative ones whose last part has an extension: src/main.rs. */
static size_t match_path(struct scan *s)
{
	size_t n = 0, slashes = 0, dot = 0;
	bool rooted = peek(s, 0) == '/' || (peek(s, 0) == '.' && (peek(s, 1) == '/' || peek(s, 1) == '.'));
	bool windows = is_letter(peek(s, 0)) && peek(s, 1) == ':' && peek(s, 2) == '\\';

	if (windows)
		for (n = 2; is_path(peek(s, n)) || peek(s, n) == '\\' || peek(s, n) == '/'; n++)
			slashes++;
	else
		for (; is_path(peek(s, n)) || peek(s, n) == '/'; n++) {
			if (peek(s, n) == '/')
				slashes++, dot = 0;
			else if (peek(s, n) == '.' && is_letter(peek(s, n + 1)))
				dot = n;
		}
	if (!windows &&
	    (!slashes || !(dot || rooted) || n < 2 || (rooted && !is_path(peek(s, 1)) && peek(s, 1) != '/')))
		return 0;
	while (n > 1 && (peek(s, n - 1) == '.' || peek(s, n - 1) == '-'))
		n--;
	mask(s, "<path>");
	return n;
}

static size_t match_json(struct scan *s)
{
	size_t n = 0, depth = 0;
	bool data = false;

	if (peek(s, 0) != '{' || s->json)
		return 0;
	for (; peek(s, n); n++) {
		uint8_t c = peek(s, n);
		if (c == '{')
			depth++;
		else if (c == '}' && --depth == 0)
			break;
		else if (c == '"' || c == ':')
			data = true;
	}
	if (!data)
		return 0;
	mask(s, "<json>");
	return peek(s, n) ? n + 1 : n;
}

/* Words behind which a quote holds data, not a name. */
static bool says_value(struct rdv_slice word)
{
	static const char *const words[] = {"value", "values", "string",    "input",   "got",     "received", "token",
					    "found", "near",   "number",    "parsing", "literal", "id",       "uuid",
					    "date",  "time",   "timestamp", "int",     "integer", "float",    "double",
					    "url",   "uri",    "file",      "path",    "user",    "email",    "address",
					    "with",  "was",    "text",      "entry"};

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (rdv_slice_is_nocase(word, words[i]))
			return true;
	return word.size > 6 && memcmp(word.data + word.size - 6, "_value", 6) == 0;
}

static void run(struct scan *s);

static void quoted(struct scan *s, struct rdv_slice content, uint8_t open, uint8_t close)
{
	struct scan inner = {.in = content, .out = s->out, .word = s->word, .depth = s->depth + 1, .json = s->json};
	bool letters = false, blank = false;

	for (size_t i = 0; i < content.size; i++) {
		letters |= is_letter(content.data[i]) || content.data[i] >= 0x80;
		blank |= is_space(content.data[i]);
	}
	rdv_buffer_u8(s->out, open);
	if ((!blank && (says_value(s->word) || !letters)) || (content.size && content.data[0] == '{'))
		rdv_buffer_text(s->out, "<q>");
	else
		run(&inner);
	rdv_buffer_u8(s->out, close);
}

static size_t match_quoted(struct scan *s)
{
	uint8_t open = peek(s, 0), close = open;
	size_t n = 1;

	if ((open != '\'' && open != '"' && open != '`') || s->depth >= 4)
		return 0;
	for (; peek(s, n) && peek(s, n) != close && !(open == '`' && peek(s, n) == '\''); n++)
		if (peek(s, n) == '\\' && peek(s, n + 1))
			n++;
	if (!peek(s, n))
		return 0;
	close = peek(s, n);
	quoted(s, rdv_slice(s->in.data + s->at + 1, n - 1), open, close);
	return n + 1;
}

/* "502 Bad Gateway", "status code 502", "HTTP 502": which status it is tells causes apart. */
static bool is_http_status(const struct scan *s, size_t n)
{
	static const char *const words[] = {"status",   "code",     "error",      "http",
					    "response", "returned", "statuscode", "exception"};
	uint8_t c = peek(s, 0);

	if (n != 3 || (c != '4' && c != '5') || !is_digit(peek(s, 1)) || !is_digit(peek(s, 2)))
		return false;
	if (peek(s, 3) == ' ' && peek(s, 4) >= 'A' && peek(s, 4) <= 'Z')
		return true;
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (rdv_slice_is_nocase(s->word, words[i]))
			return true;
	return false;
}

/* Anything that begins with a digit, with what is glued to it: 17, 1.5s, 0x7f, 2026-05-14T10:11:12Z, 10.0.0.1:80. */
static size_t match_number(struct scan *s)
{
	size_t n = 0;

	if ((peek(s, 0) == '-' || peek(s, 0) == '+') && is_digit(peek(s, 1)))
		n = 1;
	if (!is_digit(peek(s, n)))
		return 0;
	while (is_word(peek(s, n)) || (peek(s, n) && strchr("-.:/,+", peek(s, n)) && is_digit(peek(s, n + 1))))
		n++;
	if (peek(s, n) == '%')
		n++;
	if (is_http_status(s, n))
		rdv_buffer_append(s->out, s->in.data + s->at, n);
	else
		mask(s, "<n>");
	return n;
}

/* Stems whose number belongs to the name. */
static bool is_numbered_name(struct rdv_slice stem)
{
	static const char *const stems[] = {"utf",  "int",  "uint", "float", "sha", "md",    "base", "ipv",
					    "http", "i",    "u",    "f",     "x",   "h",     "tls",  "tlsv",
					    "ssl",  "sslv", "rsa",  "aes",   "log", "oauth", "s"};

	for (size_t i = 0; i < sizeof stems / sizeof stems[0]; i++)
		if (rdv_slice_is_nocase(stem, stems[i]))
			return true;
	return false;
}

/* A name with few letters, with capitals only, or with a part of digits alone is a code: SKU-4411, o-17, sku_2a1. */
static bool is_code(const struct scan *s, struct rdv_slice w)
{
	size_t digits = 0, lower = 0, letters = 0, changes = 0, hex = 0;

	for (size_t i = 0; i < w.size; i++) {
		digits += is_digit(w.data[i]);
		hex += is_hex(w.data[i]);
		letters += is_letter(w.data[i]);
		lower += w.data[i] >= 'a' && w.data[i] <= 'z';
		changes += i > 0 && is_digit(w.data[i]) != is_digit(w.data[i - 1]);
	}
	return letters <= 4 || lower == 0 || (digits >= 4 && changes >= 3) ||
	       (hex == w.size && (w.size >= 8 || before(s) == '@')) || memchr(w.data, '-', w.size);
}

/* A word with digits: a code is masked whole, a numbered name stays, of another name the digits are masked. */
static void put_mixed(struct scan *s, struct rdv_slice w)
{
	size_t stem = 0, end = w.size;

	while (!is_digit(w.data[stem]))
		stem++;
	while (end && is_digit(w.data[end - 1]))
		end--;
	if (stem == end && is_numbered_name(rdv_slice(w.data, stem))) {
		rdv_buffer_slice(s->out, w);
	} else if (is_code(s, w)) {
		mask(s, "<n>");
	} else {
		for (size_t i = 0; i < w.size; i++)
			if (!is_digit(w.data[i]))
				rdv_buffer_u8(s->out, w.data[i]);
			else if (i == 0 || !is_digit(w.data[i - 1]))
				rdv_buffer_text(s->out, "<n>");
	}
}

/* Size of the name at the position: word characters, an apostrophe inside a word, hyphens where a digit follows
 * somewhere. */
static size_t name_size(const struct scan *s, bool *digits)
{
	size_t n = 0, end;

	for (; is_word(peek(s, n)); n++)
		*digits |= is_digit(peek(s, n));
	if (n && peek(s, n) == '\'' && is_letter(peek(s, n + 1)) && !is_word(peek(s, n + 3)))
		while (is_word(peek(s, ++n)))
			;
	for (end = n; peek(s, end) == '-' && is_word(peek(s, end + 1));) {
		bool more = false;
		for (end++; is_word(peek(s, end)); end++)
			more |= is_digit(peek(s, end));
		if (more)
			n = end, *digits = true;
	}
	return n;
}

static size_t match_word(struct scan *s)
{
	bool digits = false;
	size_t n = is_word(peek(s, 0)) ? name_size(s, &digits) : 0;
	struct rdv_slice w = rdv_slice(s->in.data + s->at, n);

	if (!n)
		return 0;
	if (digits)
		put_mixed(s, w);
	else
		rdv_buffer_slice(s->out, w);
	s->word = w;
	return n;
}

/* The usual case, before anything is looked ahead for: letters, then a blank, a comma or the end. */
static size_t match_plain(struct scan *s)
{
	const uint8_t *from = s->in.data + s->at;
	size_t n = 0, left = s->in.size - s->at;

	while (n < left && is_letter(from[n]))
		n++;
	if (!n || n >= LOOK || (n < left && from[n] != ' ' && from[n] != ',' && from[n] != ')' && from[n] != ';'))
		return 0;
	s->word = rdv_slice(from, n);
	rdv_buffer_append(s->out, from, n);
	return n;
}

/* A program's version: nginx/1.22.1 */
static size_t match_version(struct scan *s)
{
	size_t n = 1;

	if (peek(s, 0) != '/' || !is_letter(before(s)) || !is_digit(peek(s, 1)))
		return 0;
	while (is_digit(peek(s, n)) || (peek(s, n) == '.' && is_digit(peek(s, n + 1))))
		n++;
	return n;
}

/* In a text that is a page, tags say nothing. */
static size_t match_tag(struct scan *s)
{
	size_t n = 1;

	if (!s->markup || peek(s, 0) != '<')
		return 0;
	while (peek(s, n) && peek(s, n) != '>')
		n++;
	if (!peek(s, n))
		return 0;
	if (s->out->size && s->out->data[s->out->size - 1] != ' ')
		rdv_buffer_u8(s->out, ' ');
	return n + 1;
}

static size_t match_space(struct scan *s)
{
	size_t n = 0;

	while (is_space(peek(s, n)))
		n++;
	if (n && s->out->size && s->out->data[s->out->size - 1] != ' ')
		rdv_buffer_u8(s->out, ' ');
	return n;
}

static size_t match_byte(struct scan *s)
{
	rdv_buffer_u8(s->out, s->in.data[s->at]);
	return 1;
}

static size_t (*const matchers[])(struct scan *s) = {
	match_plain, match_space, match_tag,    match_version, match_url,  match_email, match_uuid,
	match_path,  match_json,  match_quoted, match_number,  match_word, match_byte,
};

static void run(struct scan *s)
{
	while (s->at < s->in.size && !s->out->failed && s->out->size < 8u * RDV_ERROR_TEXT_CHARS) {
		size_t n = 0;
		for (size_t i = 0; n == 0; i++)
			n = matchers[i](s);
		s->at += n;
	}
}

void rdv_normalise(struct rdv_slice text, struct rdv_buffer *out)
{
	struct scan s = {.out = out};
	size_t from = out->size, chars;

	while (text.size && is_space(text.data[text.size - 1]))
		text.size--;
	while (text.size && is_space(text.data[0]))
		text = rdv_slice(text.data + 1, text.size - 1);
	s.in = text;
	if (text.size > 1) {
		uint8_t first = text.data[0], last = text.data[text.size - 1];
		s.json = (first == '{' && last == '}') || (first == '[' && last == ']');
		s.markup = first == '<' && last == '>';
	}
	run(&s);
	while (out->size > from && out->data[out->size - 1] == ' ')
		out->size--;
	/* What is too long is cut by at least as many bytes as there are characters too many, until it fits. */
	while (out->size > from &&
	       (chars = rdv_utf8_count(rdv_slice(out->data + from, out->size - from))) > RDV_ERROR_TEXT_CHARS)
		out->size = from + rdv_slice_cut_utf8(rdv_slice(out->data + from, out->size - from),
						      out->size - from - (chars - RDV_ERROR_TEXT_CHARS))
					   .size;
}
