/* judge.c - what an answer means: explicit verdict, the user's rules, then the tables below.
 *
 *   how the call ended      verdict  kind      cause
 *   2xx                     ack      ok
 *   401 403 405 407 421     retry    wiring    failure     the connection is set up wrongly: not the message's fault
 *   429 502 503 504         retry    infra     failure     somebody before the handler, or overload
 *   408 425 other 5xx       retry    app       failure
 *   other 4xx, 3xx          reject   msg       failure
 *   exit 0                  ack      ok
 *   exit 75                 retry    infra     failure     EX_TEMPFAIL of sysexits.h
 *   exit 64-74 76-78        reject   msg       failure
 *   other exits             retry    app       failure
 *   signal                  retry    infra     crash       limited by `crashes`, not a charged failure
 *   timeout                 retry    infra     timeout
 *   refused, reset, DNS, TLS, other transport errors:  retry, infra, failure
 *   cut off by our drain    retry    none      shutdown
 *
 * The verdict may be changed by a rule or by the handler; the kind follows: any reject is msg, any ack, drop or
 * defer is ok, and a retry keeps the table's kind or, where the table would not have retried, is app.
 * What always holds: exactly one verdict; what is not ok has a class and a fingerprint. Cannot fail. Any thread. */
#include "fingerprint.h"
#include "rules.h"

#define HOLD_MAX_MS (5 * 60 * 1000)

struct row {
	int first, last;
	enum rdv_verdict_kind verdict;
	enum rdv_kind kind;
};

/* The first row that contains the number decides. */
static const struct row http_rows[] = {
	{200, 299, RDV_ACK, RDV_KIND_OK},       {401, 401, RDV_RETRY, RDV_KIND_WIRING},
	{403, 403, RDV_RETRY, RDV_KIND_WIRING}, {405, 405, RDV_RETRY, RDV_KIND_WIRING},
	{407, 407, RDV_RETRY, RDV_KIND_WIRING}, {408, 408, RDV_RETRY, RDV_KIND_APP},
	{421, 421, RDV_RETRY, RDV_KIND_WIRING}, {425, 425, RDV_RETRY, RDV_KIND_APP},
	{429, 429, RDV_RETRY, RDV_KIND_INFRA},  {300, 499, RDV_REJECT, RDV_KIND_MSG},
	{502, 504, RDV_RETRY, RDV_KIND_INFRA},
};
static const struct row exit_rows[] = {
	{0, 0, RDV_ACK, RDV_KIND_OK},
	{75, 75, RDV_RETRY, RDV_KIND_INFRA},
	{64, 78, RDV_REJECT, RDV_KIND_MSG},
};
#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])

struct ending {
	enum rdv_cause cause;
	const char *class, *text;
};
static const struct ending endings[] = {
	[RDV_TRANSPORT_ANSWER] = {RDV_CAUSE_FAILURE, NULL, NULL},
	[RDV_TRANSPORT_REFUSED] = {RDV_CAUSE_FAILURE, "ConnectionRefused", "the connection was refused"},
	[RDV_TRANSPORT_RESET] = {RDV_CAUSE_FAILURE, "ConnectionReset", "the connection broke before an answer came"},
	[RDV_TRANSPORT_DNS] = {RDV_CAUSE_FAILURE, "NameResolution", "the handler's name could not be resolved"},
	[RDV_TRANSPORT_TLS] = {RDV_CAUSE_FAILURE, "TLS", "the TLS connection could not be set up"},
	[RDV_TRANSPORT_TIMEOUT] = {RDV_CAUSE_TIMEOUT, "Timeout", "no answer within the timeout"},
	[RDV_TRANSPORT_SIGNAL] = {RDV_CAUSE_CRASH, "Signal", "the handler was killed by a signal"},
	[RDV_TRANSPORT_SHUTDOWN] = {RDV_CAUSE_SHUTDOWN, "Shutdown", "cut off while shutting down"},
	[RDV_TRANSPORT_OTHER] = {RDV_CAUSE_FAILURE, "Transport", "the call failed before an answer came"},
};

/* "HTTP 000HTTP 001..HTTP 999": every status and exit code as static text, so that a verdict owns nothing. */
#define ONES(p)                                                                                                        \
	"HTTP " p "0HTTP " p "1HTTP " p "2HTTP " p "3HTTP " p "4HTTP " p "5HTTP " p "6HTTP " p "7HTTP " p "8HTTP " p "9"
#define TENS(p)                                                                                                        \
	ONES(p "0")                                                                                                    \
	ONES(p "1")                                                                                                    \
	ONES(p "2") ONES(p "3") ONES(p "4") ONES(p "5") ONES(p "6") ONES(p "7") ONES(p "8") ONES(p "9")
static const char numbers[] =
	TENS("0") TENS("1") TENS("2") TENS("3") TENS("4") TENS("5") TENS("6") TENS("7") TENS("8") TENS("9");
#define NUMBER_SIZE 8

static struct rdv_slice number_class(int n)
{
	return rdv_slice(numbers + (size_t)n * NUMBER_SIZE, NUMBER_SIZE);
}

static struct rdv_slice number_text(int n)
{
	size_t skip = n >= 100 ? 5 : n >= 10 ? 6 : 7;

	return rdv_slice(numbers + (size_t)n * NUMBER_SIZE + skip, NUMBER_SIZE - skip);
}

static struct row look_up(const struct row rows[], size_t count, int number)
{
	for (size_t i = 0; i < count; i++)
		if (number >= rows[i].first && number <= rows[i].last)
			return rows[i];
	return (struct row){number, number, RDV_RETRY, RDV_KIND_APP}; /* other 5xx, other exits, and nonsense */
}

static struct row built_in(const struct rdv_answer *a)
{
	if (a->transport != RDV_TRANSPORT_ANSWER)
		return (struct row){0, 0, RDV_RETRY, RDV_KIND_INFRA};
	if (a->http_status > 0)
		return look_up(http_rows, COUNT(http_rows), a->http_status);
	return look_up(exit_rows, COUNT(exit_rows), a->exit_code);
}

/* The verdict before the kind follows from it; sets out->rule and a rule's own delay. */
static enum rdv_verdict_kind decide(const struct rdv_rules *rules, const struct rdv_answer *a, const struct row *row,
				    struct rdv_verdict *out)
{
	static const enum rdv_verdict_kind kinds[] = {
		[RDV_THEN_ACK] = RDV_ACK,     [RDV_THEN_REJECT] = RDV_REJECT, [RDV_THEN_DROP] = RDV_DROP,
		[RDV_THEN_DEFER] = RDV_DEFER, [RDV_THEN_RETRY] = RDV_RETRY,
	};
	bool told = a->explicit_verdict && a->transport == RDV_TRANSPORT_ANSWER;
	int64_t defer_ms = -1;

	if (told && (a->verdict != RDV_RETRY || a->http_status > 0))
		return a->verdict;
	out->rule = rdv_rules_match(rules, a);
	if (out->rule == 0)
		return told ? RDV_RETRY : row->verdict;
	enum rdv_then then = rdv_rules_then(rules, out->rule, &defer_ms);
	if (then == RDV_THEN_DEFER && defer_ms >= 0) {
		out->has_delay = true;
		out->delay_ms = defer_ms;
	}
	return kinds[then];
}

static enum rdv_kind kind_of(enum rdv_verdict_kind verdict, enum rdv_kind table)
{
	if (verdict == RDV_REJECT)
		return RDV_KIND_MSG;
	if (verdict != RDV_RETRY)
		return RDV_KIND_OK;
	return table == RDV_KIND_INFRA || table == RDV_KIND_WIRING ? table : RDV_KIND_APP;
}

static enum rdv_cause cause_of(enum rdv_verdict_kind verdict, enum rdv_transport transport)
{
	if (verdict == RDV_ACK || verdict == RDV_DROP)
		return RDV_CAUSE_NONE;
	if (verdict == RDV_DEFER)
		return RDV_CAUSE_DEFERRAL;
	if (verdict == RDV_REJECT)
		return RDV_CAUSE_FAILURE;
	return endings[transport].cause;
}

/* Delays that the handler named, and the hold of the whole target. */
static void take_delays(const struct rdv_answer *a, struct rdv_verdict *out)
{
	int64_t hold = a->has_delay && a->delay_is_retry_after ? a->delay_ms : a->retry_after_ms;
	bool usable = a->has_delay && a->delay_ms >= 0; /* negative or past is as if it were absent */
	bool waits = out->kind == RDV_RETRY || out->kind == RDV_DEFER;

	if ((a->http_status == 429 || a->http_status == 503) && hold > 0)
		out->target_hold_ms = hold < HOLD_MAX_MS ? hold : HOLD_MAX_MS;
	if (!out->has_delay && usable && waits) {
		out->has_delay = true;
		out->delay_ms = a->delay_ms;
	}
}

/* What the handler did not tell, from the table: code, class, text. */
static void complete(const struct rdv_answer *a, struct rdv_failure *f)
{
	const struct ending *ending = &endings[a->transport];
	bool status = a->http_status > 0 && a->http_status <= 999;
	bool exited = a->exit_code >= 0 && a->exit_code <= 255 && !status && !a->explicit_verdict;

	if (a->transport != RDV_TRANSPORT_ANSWER)
		status = exited = false;
	if (f->code.size == 0 && (status || exited))
		f->code = number_text(status ? a->http_status : a->exit_code);
	if (f->class.size == 0 && status)
		f->class = number_class(a->http_status);
	if (f->class.size == 0 && ending->class != NULL)
		f->class = rdv_slice_text(ending->class);
	if (f->class.size == 0)
		f->class = rdv_slice_text(exited ? "Exit" : "Failure");
	if (f->text.size == 0 && ending->text != NULL)
		f->text = rdv_slice_text(ending->text);
}

void rdv_rules_judge(const struct rdv_rules *rules, const char *route, const struct rdv_answer *a,
		     struct rdv_verdict *out)
{
	struct row row = built_in(a);

	*out = (struct rdv_verdict){
		.kind = RDV_RETRY,
		.cause = RDV_CAUSE_SHUTDOWN,
		.evidence = RDV_KIND_NONE,
		.duplicate = a->duplicate,
		.took_ms = a->took_ms,
		.failure = a->failure,
		.answer = a->answer,
		.handler_version = a->handler_version,
	};
	if (a->transport == RDV_TRANSPORT_SHUTDOWN) {
		complete(a, &out->failure);
		return;
	}
	out->kind = decide(rules, a, &row, out);
	out->evidence = kind_of(out->kind, row.kind);
	out->cause = cause_of(out->kind, a->transport);
	take_delays(a, out);
	if (out->evidence == RDV_KIND_OK)
		return;
	complete(a, &out->failure);
	out->fingerprint = rdv_fingerprint(route, &out->failure);
}
