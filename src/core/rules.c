/* rules.c - the user's rules: compiled once, matched against answers.
 *
 * A rule is a list of conditions that must all hold; the first rule that matches wins. Patterns are PCRE2,
 * interpreted (not JIT, whose stack the match limits do not bound), over at most SUBJECT_MAX bytes, with limits
 * on steps, depth and heap: a hostile text costs a bounded time, and a match that runs into a limit, or short
 * memory, is no match. Bytes that are not UTF-8 match nothing but do no harm (PCRE2_MATCH_INVALID_UTF).
 * What always holds: a compiled set never changes; its reference count is the only shared write, and atomic.
 * What can fail: compiling (REDRIVE_INVALID with the rule's number, NO_MEMORY). Any thread. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "rules.h"
#include <assert.h>
#include <pcre2.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SUBJECT_MAX 4096  /* RDV_ERROR_TEXT_CHARS of the widest characters */
#define MATCH_LIMIT 20000 /* steps: well under a millisecond */
#define DEPTH_LIMIT 500
#define HEAP_LIMIT 256 /* KiB */

struct rule {
	struct rdv_rule_spec spec; /* its pattern pointers are not used after compiling */
	pcre2_code *class, *text;  /* own; NULL = not asked */
};

struct rdv_rules {
	atomic_uint refs;
	pcre2_match_context *limits; /* owns */
	size_t count;
	struct rule items[];
};

static pcre2_code *compile_pattern(const char *pattern, const char *what, struct rdv_error *error)
{
	int code;
	PCRE2_SIZE at;
	PCRE2_UCHAR text[200];
	pcre2_code *compiled;

	if (strlen(pattern) > RDV_RULE_PATTERN_MAX) {
		(void)rdv_error_set(error, REDRIVE_INVALID, "%s: longer than %d bytes", what, RDV_RULE_PATTERN_MAX);
		return NULL;
	}
	compiled = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
				 PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
	if (compiled == NULL) {
		if (pcre2_get_error_message(code, text, sizeof text) < 0)
			text[0] = '\0';
		(void)rdv_error_set(error, REDRIVE_INVALID, "%s: %s at character %zu", what, (const char *)text,
				    at + 1);
	}
	return compiled;
}

static enum redrive_status check_numbers(const struct rdv_rule_spec *s, struct rdv_error *error)
{
	if (s->status_count > 32 || s->exit_count > 32)
		return rdv_error_set(error, REDRIVE_INVALID, "at most 32 values in one list");
	for (size_t i = 0; i < s->status_count; i++)
		if (s->statuses[i] < 100 || s->statuses[i] > 599)
			return rdv_error_set(error, REDRIVE_INVALID, "status %d is not in 100..599", s->statuses[i]);
	for (size_t i = 0; i < s->exit_count; i++)
		if (s->exits[i] < 0 || s->exits[i] > 255)
			return rdv_error_set(error, REDRIVE_INVALID, "exit %d is not in 0..255", s->exits[i]);
	if (s->status_count == 0 && s->exit_count == 0 && !s->class_pattern && !s->text_pattern && !s->timeout)
		return rdv_error_set(error, REDRIVE_INVALID, "a rule needs at least one condition");
	return REDRIVE_OK;
}

static enum redrive_status compile_rule(const struct rdv_rule_spec *spec, struct rule *out, struct rdv_error *error)
{
	enum redrive_status status = check_numbers(spec, error);

	if (status != REDRIVE_OK)
		return status;
	out->spec = *spec;
	out->spec.class_pattern = out->spec.text_pattern = NULL; /* they borrow only until compile returns */
	if (spec->class_pattern && !(out->class = compile_pattern(spec->class_pattern, "class", error)))
		return REDRIVE_INVALID;
	if (spec->text_pattern && !(out->text = compile_pattern(spec->text_pattern, "text", error)))
		return REDRIVE_INVALID;
	return REDRIVE_OK;
}

static struct rdv_rules *rules_new(size_t count)
{
	struct rdv_rules *r = calloc(1, sizeof *r + count * sizeof r->items[0]);

	if (r == NULL)
		return NULL;
	r->limits = pcre2_match_context_create(NULL);
	if (r->limits == NULL) {
		free(r);
		return NULL;
	}
	pcre2_set_match_limit(r->limits, MATCH_LIMIT);
	pcre2_set_depth_limit(r->limits, DEPTH_LIMIT);
	pcre2_set_heap_limit(r->limits, HEAP_LIMIT);
	atomic_init(&r->refs, 1);
	return r;
}

enum redrive_status rdv_rules_compile(const struct rdv_rule_spec *specs, size_t count, struct rdv_rules **out,
				      size_t *bad, struct rdv_error *error)
{
	enum redrive_status status;
	struct rdv_rules *r;

	*out = NULL;
	*bad = count > RDV_RULES_MAX ? RDV_RULES_MAX + 1 : 0;
	if (count > RDV_RULES_MAX)
		return rdv_error_set(error, REDRIVE_INVALID, "more than %d rules", RDV_RULES_MAX);
	r = rules_new(count);
	if (r == NULL)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "rules");
	for (size_t i = 0; i < count; i++) {
		r->count = i + 1;
		status = compile_rule(&specs[i], &r->items[i], error);
		if (status != REDRIVE_OK) {
			*bad = i + 1;
			rdv_rules_unref(r);
			return status;
		}
	}
	*out = r;
	return REDRIVE_OK;
}

struct rdv_rules *rdv_rules_ref(struct rdv_rules *r)
{
	if (r != NULL)
		atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
	return r;
}

void rdv_rules_unref(struct rdv_rules *r)
{
	if (r == NULL || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (size_t i = 0; i < r->count; i++) {
		pcre2_code_free(r->items[i].class);
		pcre2_code_free(r->items[i].text);
	}
	pcre2_match_context_free(r->limits);
	free(r);
}

static bool pattern_matches(const struct rdv_rules *rules, const pcre2_code *code, struct rdv_slice text)
{
	pcre2_match_data *data = pcre2_match_data_create(1, NULL);
	PCRE2_SPTR subject = text.data ? (PCRE2_SPTR)text.data : (PCRE2_SPTR) "";
	size_t size = text.size < SUBJECT_MAX ? text.size : SUBJECT_MAX;
	int found;

	if (data == NULL)
		return false;
	found = pcre2_match(code, subject, size, 0, 0, data, rules->limits);
	pcre2_match_data_free(data);
	return found >= 0;
}

static bool listed(const int values[], size_t count, int value)
{
	for (size_t i = 0; i < count; i++)
		if (values[i] == value)
			return true;
	return false;
}

static bool rule_matches(const struct rdv_rules *rules, const struct rule *r, const struct rdv_answer *a)
{
	const struct rdv_rule_spec *s = &r->spec;
	bool answered = a->transport == RDV_TRANSPORT_ANSWER;

	if (s->timeout && a->transport != RDV_TRANSPORT_TIMEOUT)
		return false;
	if (s->status_count > 0 && !(answered && listed(s->statuses, s->status_count, a->http_status)))
		return false;
	if (s->exit_count > 0 && !(answered && listed(s->exits, s->exit_count, a->exit_code)))
		return false;
	if (r->class && !pattern_matches(rules, r->class, a->failure.class) &&
	    !pattern_matches(rules, r->class, a->failure.root_class))
		return false;
	return !r->text || pattern_matches(rules, r->text, a->failure.text);
}

uint16_t rdv_rules_match(const struct rdv_rules *rules, const struct rdv_answer *answer)
{
	for (size_t i = 0; rules != NULL && i < rules->count; i++)
		if (rule_matches(rules, &rules->items[i], answer))
			return (uint16_t)(i + 1);
	return 0;
}

enum rdv_then rdv_rules_then(const struct rdv_rules *rules, uint16_t n, int64_t *defer_ms)
{
	assert(rules != NULL && n >= 1 && n <= rules->count);
	*defer_ms = rules->items[n - 1].spec.defer_ms;
	return rules->items[n - 1].spec.then;
}

const struct rdv_retry *rdv_rules_retry(const struct rdv_rules *rules, uint16_t rule)
{
	if (rules == NULL || rule == 0 || rule > rules->count || !rules->items[rule - 1].spec.has_retry)
		return NULL;
	return &rules->items[rule - 1].spec.retry;
}
