/* tokens.c - reading and writing the tokens file with libyaml; hashing with libsodium. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>
#include "../base/clock.h"
#include "../base/text.h"
#include "tokens.h"

#define FILE_MAX (4u << 20)
#define TOKENS_MAX 10000u
#define PREFIX "rdv_"

static const char *const role_names[RDV_ROLE_COUNT] = {"none", "viewer", "reader", "operator", "approver", "admin"};

const char *rdv_role_name(enum rdv_role r)
{
	return (unsigned)r < RDV_ROLE_COUNT ? role_names[r] : "none";
}

bool rdv_role_parse(const char *name, enum rdv_role *out)
{
	for (int i = 1; i < RDV_ROLE_COUNT; i++)
		if (strcmp(name, role_names[i]) == 0) {
			*out = (enum rdv_role)i;
			return true;
		}
	return false;
}

void rdv_tokens_done(struct rdv_tokens *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->count; i++)
		free(t->items[i].routes);
	free(t->items);
	memset(t, 0, sizeof *t);
}

static struct rdv_token *append(struct rdv_tokens *t)
{
	struct rdv_token *items = t->count < TOKENS_MAX ? realloc(t->items, (t->count + 1) * sizeof *items) : NULL;
	if (!items)
		return NULL;
	t->items = items;
	memset(&items[t->count], 0, sizeof *items);
	return &items[t->count++];
}

static bool name_allowed(const char *name)
{
	size_t size = strlen(name);
	return size >= 1 && size <= 100 &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@") == size;
}

/* ---- the file ---- */

struct file_reader {
	yaml_document_t document;
	const char *file;
	struct rdv_error *error;
};

static enum redrive_status bad(struct file_reader *r, const yaml_node_t *node, const char *what)
{
	return rdv_error_set(r->error, REDRIVE_REFUSED, "%s:%zu:%zu: %s", r->file, node ? node->start_mark.line + 1 : 1,
			     node ? node->start_mark.column + 1 : 1, what);
}

static const char *scalar(const yaml_node_t *node)
{
	return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

static enum redrive_status read_routes(struct file_reader *r, const yaml_node_t *node, struct rdv_token *token)
{
	if (node->type != YAML_SEQUENCE_NODE)
		return bad(r, node, "'routes' must be a list");
	size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
	if (count == 0)
		return bad(r, node, "'routes' names none: leave it out for all routes");
	token->routes = calloc(count + 1, sizeof *token->routes);
	if (!token->routes)
		return rdv_error_set(r->error, REDRIVE_NO_MEMORY, "out of memory");
	for (size_t i = 0; i < count; i++) {
		const char *text = scalar(yaml_document_get_node(&r->document, node->data.sequence.items.start[i]));
		if (!text || strlen(text) > 100)
			return bad(r, node, "'routes' holds something that is no route name");
		snprintf(token->routes[token->route_count++], 101, "%s", text);
	}
	return REDRIVE_OK;
}

static bool read_hash(const char *text, uint8_t hash[32])
{
	size_t size;
	return strncmp(text, "blake2b:", 8) == 0 &&
	       sodium_hex2bin(hash, 32, text + 8, strlen(text + 8), NULL, &size, NULL) == 0 && size == 32;
}

static enum redrive_status read_member(struct file_reader *r, const yaml_node_t *key, const yaml_node_t *value,
				       struct rdv_token *token, bool *has_hash)
{
	const char *name = scalar(key), *text = scalar(value);
	if (!name)
		return bad(r, key, "a key must be a word");
	if (strcmp(name, "routes") == 0)
		return read_routes(r, value, token);
	if (!text)
		return bad(r, value, "one value is expected here");
	if (strcmp(name, "name") == 0 && name_allowed(text))
		snprintf(token->name, sizeof token->name, "%s", text);
	else if (strcmp(name, "role") == 0 && rdv_role_parse(text, &token->role))
		return REDRIVE_OK;
	else if (strcmp(name, "hash") == 0 && read_hash(text, token->hash))
		*has_hash = true;
	else if (strcmp(name, "added") == 0)
		snprintf(token->added, sizeof token->added, "%s", text);
	else
		return bad(r, key, "not understood: a token has name, role, routes, hash (blake2b:<hex>) and added");
	return REDRIVE_OK;
}

static enum redrive_status read_tokens(struct file_reader *r, struct rdv_tokens *out)
{
	yaml_node_t *root = yaml_document_get_root_node(&r->document), *list = NULL;
	if (!root)
		return REDRIVE_OK;
	if (root->type == YAML_MAPPING_NODE && root->data.mapping.pairs.top - root->data.mapping.pairs.start == 1 &&
	    scalar(yaml_document_get_node(&r->document, root->data.mapping.pairs.start->key)) &&
	    strcmp(scalar(yaml_document_get_node(&r->document, root->data.mapping.pairs.start->key)), "tokens") == 0)
		list = yaml_document_get_node(&r->document, root->data.mapping.pairs.start->value);
	if (!list || list->type != YAML_SEQUENCE_NODE)
		return bad(r, root, "a tokens file holds one list named 'tokens'");
	for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top; i++) {
		yaml_node_t *node = yaml_document_get_node(&r->document, *i);
		struct rdv_token *token = append(out);
		bool has_hash = false;
		if (!token || node->type != YAML_MAPPING_NODE)
			return bad(r, node, "a token must be a mapping");
		enum redrive_status status = REDRIVE_OK;
		for (yaml_node_pair_t *p = node->data.mapping.pairs.start;
		     p < node->data.mapping.pairs.top && status == REDRIVE_OK; p++)
			status = read_member(r, yaml_document_get_node(&r->document, p->key),
					     yaml_document_get_node(&r->document, p->value), token, &has_hash);
		if (status != REDRIVE_OK)
			return status;
		if (!token->name[0] || token->role == RDV_ROLE_NONE || !has_hash)
			return bad(r, node, "a token needs name, role and hash");
	}
	return REDRIVE_OK;
}

enum redrive_status rdv_tokens_load(const char *file, struct rdv_tokens *out, struct rdv_error *error)
{
	memset(out, 0, sizeof *out);
	FILE *f = fopen(file, "re");
	if (!f)
		return rdv_error_errno(error, errno, "tokens file '%s'", file);
	struct stat info;
	if (fstat(fileno(f), &info) != 0 || info.st_size > FILE_MAX) {
		fclose(f);
		return rdv_error_set(error, REDRIVE_REFUSED, "tokens file '%s' is larger than 4 MiB", file);
	}
	yaml_parser_t parser;
	struct file_reader r = {.file = file, .error = error};
	enum redrive_status status = REDRIVE_NO_MEMORY;
	if (yaml_parser_initialize(&parser)) {
		yaml_parser_set_input_file(&parser, f);
		if (yaml_parser_load(&parser, &r.document)) {
			status = read_tokens(&r, out);
			yaml_document_delete(&r.document);
		} else {
			status = rdv_error_set(error, REDRIVE_REFUSED, "%s:%zu:%zu: not YAML: %s", file,
					       parser.problem_mark.line + 1, parser.problem_mark.column + 1,
					       parser.problem ? parser.problem : "unreadable");
		}
		yaml_parser_delete(&parser);
	}
	fclose(f);
	if (status != REDRIVE_OK)
		rdv_tokens_done(out);
	return status;
}

enum redrive_status rdv_tokens_save(const char *file, const struct rdv_tokens *t, struct rdv_error *error)
{
	char temporary[4096];
	snprintf(temporary, sizeof temporary, "%s.%d", file, (int)getpid());
	int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (!f)
		return rdv_error_errno(error, errno, "tokens file '%s'", file);
	fprintf(f, "# Made by redrive token add. Hashes only: a token cannot be read back.\ntokens:\n");
	for (size_t i = 0; i < t->count; i++) {
		const struct rdv_token *token = &t->items[i];
		char hex[65];
		sodium_bin2hex(hex, sizeof hex, token->hash, 32);
		fprintf(f, "  - name: \"%s\"\n    role: %s\n    hash: blake2b:%s\n    added: \"%s\"\n", token->name,
			rdv_role_name(token->role), hex, token->added);
		for (size_t r = 0; r < token->route_count; r++)
			fprintf(f, "%s\"%s\"%s", r ? ", " : "    routes: [", token->routes[r],
				r + 1 == token->route_count ? "]\n" : "");
	}
	bool good = fflush(f) == 0 && fsync(fd) == 0;
	good = fclose(f) == 0 && good;
	if (good && rename(temporary, file) == 0)
		return REDRIVE_OK;
	enum redrive_status status = rdv_error_errno(error, errno, "tokens file '%s'", file);
	unlink(temporary);
	return status;
}

/* ---- use ---- */

static void hash_token(struct rdv_slice text, uint8_t hash[32])
{
	crypto_generichash(hash, 32, text.data, text.size, NULL, 0);
}

enum redrive_status rdv_tokens_add(struct rdv_tokens *t, const char *name, enum rdv_role role,
				   const char *const *routes, size_t route_count, char secret[RDV_TOKEN_TEXT],
				   struct rdv_error *error)
{
	if (!name_allowed(name))
		return rdv_error_set(error, REDRIVE_USAGE, "'%s' is no token name: use 1 to 100 of A-Z a-z 0-9 . _ - @",
				     name);
	for (size_t i = 0; i < t->count; i++)
		if (strcmp(t->items[i].name, name) == 0)
			return rdv_error_set(error, REDRIVE_CONFLICT,
					     "a token named '%s' is there already: remove it first", name);
	struct rdv_token *token = append(t);
	if (!token)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "out of memory");
	snprintf(token->name, sizeof token->name, "%s", name);
	token->role = role;
	token->routes = route_count ? calloc(route_count, sizeof *token->routes) : NULL;
	if (route_count && !token->routes) { /* none would be all */
		t->count--;
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "out of memory");
	}
	for (size_t i = 0; i < route_count; i++)
		snprintf(token->routes[token->route_count++], 101, "%s", routes[i]);
	rdv_wall_format(rdv_wall_now(), token->added);
	uint8_t random[32];
	randombytes_buf(random, sizeof random);
	memcpy(secret, PREFIX, sizeof PREFIX);
	sodium_bin2base64(secret + strlen(PREFIX), RDV_TOKEN_TEXT - strlen(PREFIX), random, sizeof random,
			  sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	hash_token(rdv_slice_text(secret), token->hash);
	return REDRIVE_OK;
}

enum redrive_status rdv_tokens_remove(struct rdv_tokens *t, const char *name)
{
	for (size_t i = 0; i < t->count; i++) {
		if (strcmp(t->items[i].name, name) != 0)
			continue;
		free(t->items[i].routes);
		memmove(&t->items[i], &t->items[i + 1], (t->count - i - 1) * sizeof *t->items);
		t->count--;
		return REDRIVE_OK;
	}
	return REDRIVE_NOT_FOUND;
}

const struct rdv_token *rdv_tokens_find(const struct rdv_tokens *t, struct rdv_slice presented)
{
	uint8_t hash[32];
	const struct rdv_token *found = NULL;
	hash_token(presented, hash);
	for (size_t i = 0; i < t->count; i++)
		if (sodium_memcmp(hash, t->items[i].hash, sizeof hash) == 0)
			found = &t->items[i];
	return found;
}

enum redrive_status rdv_token_copy(const struct rdv_token *from, struct rdv_token *out)
{
	void *routes = from->route_count ? calloc(from->route_count, sizeof *from->routes) : NULL;
	*out = (struct rdv_token){.route_count = 0};
	if (from->route_count && !routes)
		return REDRIVE_NO_MEMORY;
	*out = *from;
	out->routes = routes;
	if (routes)
		memcpy(routes, from->routes, from->route_count * sizeof *from->routes);
	return REDRIVE_OK;
}

bool rdv_token_covers(const struct rdv_token *t, const char *route)
{
	for (size_t i = 0; i < t->route_count; i++)
		if (strcmp(t->routes[i], route) == 0)
			return true;
	return t->route_count == 0;
}
