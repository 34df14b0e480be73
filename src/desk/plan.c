#include "room.h"
enum redrive_status rdv_plan_create(struct rdv_desk *d, const struct rdv_plan_request *r, struct rdv_plan *out,
				    struct rdv_error *error)
{
	return REDRIVE_INTERNAL;
}
enum redrive_status rdv_plan_get(struct rdv_desk *d, const char *id, struct rdv_plan *out)
{
	return REDRIVE_INTERNAL;
}
enum redrive_status rdv_plan_list(struct rdv_desk *d, size_t limit, char cursor[RDV_CURSOR_TEXT],
				  void (*each)(void *ctx, const struct rdv_plan *plan), void *ctx)
{
	return REDRIVE_INTERNAL;
}
enum redrive_status rdv_plan_act(struct rdv_desk *d, const char *id, enum rdv_plan_verb verb, const char *digest,
				 double rate, const char *who, struct rdv_plan *out, struct rdv_error *error)
{
	return REDRIVE_INTERNAL;
}
enum redrive_status rdv_plan_letters(struct rdv_desk *d, const char *id, const char *outcome, size_t limit,
				     char cursor[RDV_CURSOR_TEXT],
				     void (*each)(void *ctx, const struct rdv_plan_letter *l), void *ctx)
{
	return REDRIVE_INTERNAL;
}
const char *rdv_plan_state_name(enum rdv_plan_state s)
{
	return "draft";
}
