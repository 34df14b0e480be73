/* message.c - the names of verdicts, causes, kinds, reasons and states: one table each.
 *
 * The names are those of the HTTP API and of exports. A value out of range gives "unknown", so that a
 * damaged byte never becomes a wild pointer. Pure; any thread. */
#include "message.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const char *const verdict_names[] = {
	[RDV_ACK] = "ack", [RDV_RETRY] = "retry", [RDV_REJECT] = "reject", [RDV_DEFER] = "defer", [RDV_DROP] = "drop",
};
static const char *const cause_names[] = {
	[RDV_CAUSE_NONE] = "none",     [RDV_CAUSE_FAILURE] = "failure",   [RDV_CAUSE_TIMEOUT] = "timeout",
	[RDV_CAUSE_CRASH] = "crash",   [RDV_CAUSE_SHUTDOWN] = "shutdown", [RDV_CAUSE_DEFERRAL] = "deferral",
	[RDV_CAUSE_OUTAGE] = "outage",
};
static const char *const kind_names[] = {
	[RDV_KIND_OK] = "ok",         [RDV_KIND_INFRA] = "infra", [RDV_KIND_APP] = "app",
	[RDV_KIND_WIRING] = "wiring", [RDV_KIND_MSG] = "msg",     [RDV_KIND_NONE] = "none",
};
static const char *const reason_names[] = {
	[RDV_REASON_NONE] = "none",
	[RDV_REASON_REJECTED] = "rejected",
	[RDV_REASON_EXHAUSTED] = "exhausted",
	[RDV_REASON_EXPIRED] = "expired",
	[RDV_REASON_UNDECODABLE] = "undecodable",
	[RDV_REASON_TOO_LARGE] = "too_large",
	[RDV_REASON_DAMAGED] = "damaged",
	[RDV_REASON_CRASHED] = "crashed",
	[RDV_REASON_FOLLOWER] = "follower",
	[RDV_REASON_REVOKED] = "revoked",
	[RDV_REASON_LIMIT_LOWERED] = "limit_lowered",
	[RDV_REASON_OPERATOR] = "operator",
	[RDV_REASON_ADOPTED] = "adopted",
};
static const char *const state_names[] = {
	[RDV_STATE_READY] = "ready",     [RDV_STATE_IN_FLIGHT] = "in_flight", [RDV_STATE_WAITING] = "waiting",
	[RDV_STATE_HELD] = "held",       [RDV_STATE_DYING] = "dead",          [RDV_STATE_DEAD] = "dead",
	[RDV_STATE_ACKED] = "acked",     [RDV_STATE_DROPPED] = "dropped",     [RDV_STATE_DONE] = "done",
	[RDV_STATE_REVOKED] = "revoked", [RDV_STATE_REPLAYING] = "replaying",
};
_Static_assert(COUNT(verdict_names) == RDV_VERDICT_COUNT, "every verdict has a name");
_Static_assert(COUNT(cause_names) == RDV_CAUSE_COUNT, "every cause has a name");
_Static_assert(COUNT(reason_names) == RDV_REASON_COUNT, "every reason has a name");
_Static_assert(COUNT(state_names) == RDV_STATE_COUNT, "every state has a name");

static const char *name_of(const char *const names[], size_t count, unsigned value)
{
	return value < count ? names[value] : "unknown";
}

const char *rdv_verdict_name(enum rdv_verdict_kind v)
{
	return name_of(verdict_names, COUNT(verdict_names), v);
}

const char *rdv_cause_name(enum rdv_cause c)
{
	return name_of(cause_names, COUNT(cause_names), c);
}

const char *rdv_kind_name(enum rdv_kind k)
{
	return name_of(kind_names, COUNT(kind_names), k);
}

const char *rdv_reason_name(enum rdv_reason r)
{
	return name_of(reason_names, COUNT(reason_names), r);
}

const char *rdv_state_name(enum rdv_state s)
{
	return name_of(state_names, COUNT(state_names), s);
}

static bool find_name(const char *const names[], size_t count, struct rdv_slice name, unsigned *out)
{
	for (size_t i = 0; i < count; i++)
		if (rdv_slice_is(name, names[i])) {
			*out = (unsigned)i;
			return true;
		}
	return false;
}

bool rdv_reason_parse(struct rdv_slice name, enum rdv_reason *out)
{
	unsigned found;

	/* "none" is no reason that anybody may ask for. */
	if (!find_name(reason_names, COUNT(reason_names), name, &found) || found == RDV_REASON_NONE)
		return false;
	*out = (enum rdv_reason)found;
	return true;
}

bool rdv_verdict_parse(struct rdv_slice name, enum rdv_verdict_kind *out)
{
	unsigned found;

	if (!find_name(verdict_names, COUNT(verdict_names), name, &found))
		return false;
	*out = (enum rdv_verdict_kind)found;
	return true;
}
