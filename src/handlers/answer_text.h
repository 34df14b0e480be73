/* answer_text.h - an answer's words copied to where they can stay. */
#ifndef RDV_HANDLERS_ANSWER_TEXT_H
#define RDV_HANDLERS_ANSWER_TEXT_H
#include "../core/rules.h"

/* *to = *from with its slices copied behind what is in `text`: cut to what is stored of them, bytes that are no UTF-8
 * replaced (but for `answer`, which is bytes). Short of memory the slices are empty. Slices that borrow from
 * `text` already may dangle. Pure. */
void rdv_answer_copy(const struct rdv_answer *from, struct rdv_buffer *text, struct rdv_answer *to);
#endif
