/* output.h - what people see: tables, detail lists, progress, and JSON as it came.
 * Honours NO_COLOR, the terminal's width and --no-pager (a table longer than the screen goes through PAGER or `less
 * -FRX`). */
#ifndef RDV_APP_OUTPUT_H
#define RDV_APP_OUTPUT_H
#include <jansson.h>
#include "command.h"

struct rdv_column {
	const char *title;
	bool right;   /* numbers */
	unsigned min; /* narrower than this it is never cut */
	bool spare;   /* left out when the screen is too narrow for all */
};
struct rdv_table;
struct rdv_table *rdv_table_new(const struct rdv_column *columns, size_t count);
void rdv_table_cell(struct rdv_table *t, const char *fmt, ...) RDV_PRINTF(2, 3); /* next cell of the row */
void rdv_table_row(struct rdv_table *t);                                         /* ends the row */
void rdv_table_print(struct rdv_table *t, const struct rdv_invocation *in);      /* and frees */
/* Prints the JSON as the API returned it, one value, newline at the end. */
void rdv_print_json(const json_t *value);
/* Members of a JSON object by dotted path; "" when absent or null. The text is valid until the next call with the same
 * slot (0..7). */
const char *rdv_json_text(const json_t *object, const char *path, int slot);
json_int_t rdv_json_int(const json_t *object, const char *path);
const json_t *rdv_json_at(const json_t *object, const char *path);
/* Prints text from outside, without what would move the cursor; lines after the first are indented. */
void rdv_print_text(const char *text, unsigned indent);
bool rdv_output_color(void);
unsigned rdv_output_width(void);
/* A bar on standard error when it is a terminal, a line every few seconds otherwise; done == total ends it. */
void rdv_progress(const char *what, uint64_t done, uint64_t total);
#endif
