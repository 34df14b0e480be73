/* normalise.h - pieces of normalising that fingerprints use beside rdv_normalise (fingerprint.h). Private to the core.
 */
#ifndef RDV_CORE_NORMALISE_H
#define RDV_CORE_NORMALISE_H
#include "message.h"

/* The innermost frame of the user's own code in a stack trace, as a name without line numbers and folders; empty when
 * there is none. Java, Kotlin, C#, JavaScript, Python, Ruby, PHP, Go, Rust and gdb's form. Borrows from the stack. */
struct rdv_slice rdv_stack_frame(struct rdv_slice stack);
/* The class behind the last "Caused by:" of a stack; empty when there is none. Borrows. */
struct rdv_slice rdv_stack_root_class(struct rdv_slice stack);
#endif
