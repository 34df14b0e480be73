/* test_kill.c - kill -9 under load, again and again: what was acknowledged is delivered, in order, and counted once.
 *
 * A child publishes and handles; what it does it notes in a file by single appending writes, which survive its death.
 * The parent kills it at random moments (KILLS times, default 12; seed by SEED), and at the end lets a last child drain
 * and judges the notes. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include "harness.h"

#define T "orders"
#define KEYS 7

enum note_kind { PUBLISHED, FAILED, SUCCEEDED, DRAINED };
struct note {
	uint32_t kind, key;
	uint64_t offset;
	uint32_t attempt, pad;
	uint64_t received, acked;
};

static int notes; /* the child's file */

static void write_note(const struct note *n)
{
	if (write(notes, n, sizeof *n) != sizeof *n)
		_exit(9);
}

/* Every fifth message fails at its first attempt. */
static bool note_call(void *ctx, struct rdv_call *call)
{
	struct rdv_body body;
	struct note n = {.kind = SUCCEEDED, .offset = call->offset, .attempt = call->attempt};

	(void)ctx;
	if (rdv_body_decode(call->payload, &body))
		_exit(8);
	n.key = body.key.size ? body.key.data[0] : 0;
	if (call->offset % 5 == 0 && call->attempt == 1)
		n.kind = FAILED;
	write_note(&n);
	call->answer.transport = RDV_TRANSPORT_ANSWER;
	call->answer.explicit_verdict = true;
	call->answer.verdict = n.kind == FAILED ? RDV_RETRY : RDV_ACK;
	return true;
}

static struct rdv_engine *child_engine(const char *dir)
{
	struct rdv_route_options o = route_options("r", T, NULL);
	struct rdv_engine_options eo = engine_options(dir);

	o.lane.order = RDV_ORDER_KEY;
	o.lane.retry.base_ms = 5;
	o.lane.retry.crashes = 1000;
	o.callback.call = note_call;
	o.callback.threads = 2;
	eo.segment_size = 256u << 10;
	return start_engine(&eo, &o, 1);
}

static void child_load(const char *dir)
{
	struct rdv_engine *e = child_engine(dir);

	for (uint32_t i = 0;; i++) {
		char key[2] = {(char)('a' + i % KEYS), 0};
		struct rdv_published_at at;
		struct note n = {.kind = PUBLISHED, .key = (uint8_t)key[0]};

		if (publish_keyed(e, T, key, "x", &at) != REDRIVE_OK)
			_exit(7);
		n.offset = at.offset;
		write_note(&n);
	}
}

static void child_drain(const char *dir)
{
	struct rdv_engine *e = child_engine(dir);
	struct rdv_route_status s;
	struct note n = {.kind = DRAINED};

	do {
		usleep(5000);
		s = status_of(e, "r");
	} while (s.account.acked + s.account.dead < s.account.received);
	n.received = s.account.received;
	n.acked = s.account.acked;
	write_note(&n);
	rdv_engine_free(e);
	_exit(0);
}

static pid_t start_child(const char *dir, const char *path, void (*body)(const char *dir))
{
	pid_t pid = fork();

	if (pid)
		return pid;
	notes = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
	body(dir);
	_exit(6);
}

/* What the notes say about each offset. */
struct fate {
	uint32_t key;
	bool published, failed, succeeded;
};

static void judge(const struct note *all, size_t count)
{
	struct fate *fates;
	uint64_t most = 0, published = 0;

	for (size_t i = 0; i < count; i++)
		if (all[i].offset > most)
			most = all[i].offset;
	fates = calloc(most + 1, sizeof *fates);
	for (size_t i = 0; i < count; i++) {
		const struct note *n = &all[i];
		struct fate *f = &fates[n->offset];

		if (n->kind == DRAINED)
			continue;
		f->key = n->key;
		if (n->kind == PUBLISHED) {
			f->published = true;
			published++;
			continue;
		}
		/* An attempt above 1 was recorded before. */
		if (n->attempt > 1)
			assert_true(f->failed);
		/* Order: everything of the key before it has succeeded when it is delivered for the first time. */
		if (!f->failed && !f->succeeded)
			for (uint64_t k = n->offset; k-- > 0 && k + 3 * KEYS > n->offset;)
				if (fates[k].key == n->key)
					assert_true(fates[k].succeeded);
		f->failed = f->failed || n->kind == FAILED;
		f->succeeded = f->succeeded || n->kind == SUCCEEDED;
	}
	for (uint64_t k = 0; k <= most; k++)
		if (fates[k].published)
			assert_true(fates[k].succeeded);
	assert_int_equal(all[count - 1].kind, DRAINED);
	assert_true(all[count - 1].received >= published);
	assert_int_equal(all[count - 1].received, most + 1);
	assert_int_equal(all[count - 1].acked, all[count - 1].received);
	free(fates);
}

/* pitfall: one message crashes the process; broker restart; close commits what was fetched */
static void killed_again_and_again_nothing_acknowledged_is_lost(void **state)
{
	char *dir = new_dir(), path[128];
	int kills = getenv("KILLS") ? atoi(getenv("KILLS")) : 12, status;
	struct note *all;
	struct stat st;
	pid_t pid;
	FILE *file;

	(void)state;
	srand(getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 1);
	snprintf(path, sizeof path, "%s.notes", dir);
	for (int i = 0; i < kills; i++) {
		pid = start_child(dir, path, child_load);
		usleep((useconds_t)(50000 + rand() % 250000));
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status)); /* it did not end by itself */
	}
	pid = start_child(dir, path, child_drain);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	file = fopen(path, "rb");
	assert_int_equal(fstat(fileno(file), &st), 0);
	all = malloc((size_t)st.st_size + 1);
	assert_int_equal(fread(all, 1, (size_t)st.st_size, file), st.st_size);
	fclose(file);
	judge(all, (size_t)st.st_size / sizeof *all);
	free(all);
	unlink(path);
	remove_dir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(killed_again_and_again_nothing_acknowledged_is_lost)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
