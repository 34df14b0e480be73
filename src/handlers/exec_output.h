/* exec_output.h - what a process wrote to standard error, as a failure. Pure, fuzzed; any thread. */
#ifndef RDV_HANDLERS_EXEC_OUTPUT_H
#define RDV_HANDLERS_EXEC_OUTPUT_H
#include "../core/message.h"

#define RDV_EXEC_TAIL 8192 /* bytes that are kept of standard error: its end */
#define RDV_EXEC_TEXT 1000 /* of these, the error text */

/* The last RDV_EXEC_TAIL bytes of a stream. */
struct rdv_exec_tail {
	uint8_t bytes[2 * RDV_EXEC_TAIL];
	size_t size;
	bool cut; /* there was more before it */
};
void rdv_exec_tail_add(struct rdv_exec_tail *tail, const void *data, size_t size);
struct rdv_slice rdv_exec_tail_slice(const struct rdv_exec_tail *tail);

/* Fills class, root_class, text and stack with slices of `output`; bytes as they came. Text: the last RDV_EXEC_TEXT
 * bytes without the line ends behind them. Class: of the last line "class: text" that begins with a name
 * (letters, digits, _ . $ - and ::, no blank). Root class: likewise of the last line "Caused by: class: text"
 * or "Caused by: class". Stack: the whole, if it has more than one line. */
void rdv_exec_output(struct rdv_slice output, struct rdv_failure *out);
#endif
