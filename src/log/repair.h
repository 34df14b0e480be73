/* repair.h - writes a damaged log anew, without its bad frames. Offline, under the lock. */
#ifndef RDV_LOG_REPAIR_H
#define RDV_LOG_REPAIR_H
#include "survey.h"

/* Copies all segments to <dir>/before-repair-<time>, then replaces the log by one that holds every frame that counts.
 */
enum redrive_status rdv_repair(struct rdv_survey *v, struct rdv_error *error) RDV_MUST_CHECK;
#endif
