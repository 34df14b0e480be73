/* directory.h - what lies in a data directory, and who holds it.
 *
 * The lock is a flock on the file `lock`, which holds the holder's pid for the error message; the kernel releases it
 * with the process, and child processes do not inherit it. Any thread. */
#ifndef RDV_LOG_DIRECTORY_H
#define RDV_LOG_DIRECTORY_H
#include "segment.h"

struct rdv_names {
	uint64_t *items; /* owns; rising */
	size_t count, capacity;
};
struct rdv_listing {
	struct rdv_names of[RDV_STORE_KINDS];
	uint64_t highest; /* number of a spare or fill */
	bool failed;
};
/* Zero-initialise the listing; done in any case. */
enum redrive_status rdv_directory_list(const struct rdv_store *s, struct rdv_listing *l,
				       struct rdv_error *error) RDV_MUST_CHECK;
void rdv_listing_done(struct rdv_listing *l);
/* The segments' numbers; *numbers is owned by the caller, NULL if there are none. CORRUPT for impossible ones. */
enum redrive_status rdv_listing_segments(const struct rdv_listing *l, uint32_t **numbers, uint32_t *count,
					 struct rdv_error *error) RDV_MUST_CHECK;
/* Creates the directory, 0700, if it is missing. */
enum redrive_status rdv_directory_make(const struct rdv_store *s, struct rdv_error *error) RDV_MUST_CHECK;
/* BUSY names the process that holds it. */
enum redrive_status rdv_directory_lock(const char *dir, int *fd, struct rdv_error *error) RDV_MUST_CHECK;
/* For reading alone: BUSY if a process works on the directory; changes nothing. *fd may be -1 afterwards. */
enum redrive_status rdv_directory_lock_shared(const char *dir, int *fd, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_directory_unlock(int fd); /* accepts -1 */
#endif
