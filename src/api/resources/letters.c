/* letters.c - /v1/dead-letters: list by the filters known so far, one letter, its body. */
#include <stdio.h>
#include "../api.h"
#include "../json.h"
#include "resources.h"

struct page {
	struct rdv_exchange *x;
	json_t *items;
};

static bool letter_in_scope(const struct rdv_exchange *x, const struct rdv_letter *l)
{
	char route[101];
	rdv_slice_to_text(l->envelope.route, route, sizeof route);
	return rdv_exchange_covers(x, route);
}

static void add_letter(void *ctx, const struct rdv_letter *l)
{
	struct page *p = ctx;
	if (letter_in_scope(p->x, l))
		json_array_append_new(p->items, rdv_json_letter(l, p->x->who.role >= RDV_ROLE_READER));
}

static bool read_time(struct rdv_exchange *x, const char *name, struct rdv_wall *out)
{
	const char *text = rdv_exchange_query(x, name);
	if (!text || rdv_wall_parse(rdv_slice_text(text), out) == REDRIVE_OK)
		return true;
	rdv_reply_problem(x, 400, NULL, "'%s' is no time like 2026-11-30T12:00:00Z", name);
	return false;
}

static bool read_query(struct rdv_exchange *x, struct rdv_query *q)
{
	size_t position = 0;
	struct rdv_error error = {""};
	struct rdv_wall from = {0}, to = {0};
	enum redrive_status status = rdv_query_parse(rdv_exchange_query_bytes(x, "q"), q, &position, &error);
	if (status != REDRIVE_OK) {
		json_t *errors = json_pack("[{s:s, s:I, s:s}]", "pointer", "q", "position", (json_int_t)position,
					   "detail", error.text);
		rdv_reply_problem(x, 422, errors, "q, character %zu: %s", position, error.text);
		return false;
	}
	if (!read_time(x, "from", &from) || !read_time(x, "to", &to))
		return false;
	if (from.ms > q->dead_from.ms)
		q->dead_from = from;
	if (to.ms && (q->dead_to.ms == 0 || to.ms < q->dead_to.ms))
		q->dead_to = to;
	return true;
}

void rdv_resource_letters_list(struct rdv_exchange *x)
{
	size_t limit;
	struct rdv_query q = {0};
	char cursor[RDV_CURSOR_TEXT] = "";
	const char *given = rdv_exchange_query(x, "cursor"), *sort = rdv_exchange_query(x, "sort");
	if (!rdv_exchange_limit(x, &limit))
		return;
	if (sort && strcmp(sort, "dead_at") != 0 && strcmp(sort, "-dead_at") != 0) {
		rdv_reply_problem(x, 400, NULL, "sort must be dead_at or -dead_at");
		return;
	}
	if (given && strlen(given) >= sizeof cursor) {
		rdv_reply_problem(x, 400, NULL, "this cursor is not one of ours");
		return;
	}
	snprintf(cursor, sizeof cursor, "%s", given ? given : "");
	if (!read_query(x, &q)) {
		rdv_query_done(&q);
		return;
	}
	struct page page = {x, json_array()};
	struct rdv_error error = {""};
	enum redrive_status status =
		rdv_desk_list(x->desk, &q, sort && sort[0] == 'd', limit, cursor, add_letter, &page, &error);
	rdv_query_done(&q);
	if (status == REDRIVE_OK) {
		rdv_reply_json(x, 200, rdv_json_list(page.items, cursor));
		return;
	}
	json_decref(page.items);
	if (status == REDRIVE_INVALID)
		rdv_reply_problem(x, 400, NULL, "this cursor is not one of ours");
	else
		rdv_reply_status(x, status, error.text);
}

/* Fetches the letter of the path, in scope; false: answered. */
static bool find_letter(struct rdv_exchange *x, struct rdv_letter *l)
{
	enum redrive_status status = rdv_desk_get(x->desk, x->params[0], l);
	if (status == REDRIVE_OK && letter_in_scope(x, l))
		return true;
	if (status == REDRIVE_OK)
		rdv_letter_done(l);
	if (status == REDRIVE_OK || status == REDRIVE_NOT_FOUND || status == REDRIVE_INVALID)
		rdv_reply_status(x, REDRIVE_NOT_FOUND, "there is no such letter");
	else
		rdv_reply_status(x, status, NULL);
	return false;
}

void rdv_resource_letter_get(struct rdv_exchange *x)
{
	struct rdv_letter l;
	if (!find_letter(x, &l))
		return;
	rdv_reply_json(x, 200, rdv_json_letter(&l, x->who.role >= RDV_ROLE_READER));
	rdv_letter_done(&l);
}

void rdv_resource_letter_body(struct rdv_exchange *x)
{
	struct rdv_letter l;
	struct rdv_block *body = NULL;
	if (!find_letter(x, &l))
		return;
	enum redrive_status status = rdv_desk_body(x->desk, x->params[0], &body);
	if (status == REDRIVE_OK) {
		char type[256] = "application/octet-stream", disposition[96];
		if (l.envelope.content_type.size && l.envelope.content_type.size < sizeof type)
			rdv_slice_to_text(l.envelope.content_type, type, sizeof type);
		snprintf(disposition, sizeof disposition, "attachment; filename=\"%s.body\"", l.id);
		rdv_desk_audit(x->desk, x->who.name, "body", l.id, "");
		rdv_reply_bytes(x, 200, type, rdv_block_slice(body), disposition);
	} else {
		rdv_reply_status(x, status,
				 status == REDRIVE_NOT_FOUND
					 ? "this letter has no body: it was damaged when it was read"
					 : NULL);
	}
	rdv_block_unref(body);
	rdv_letter_done(&l);
}
