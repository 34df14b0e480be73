/* log_world.h - a log with an owner that knows what it wrote, for tests of crashes: whatever happens, check finds out.
 *
 * The owner keeps a small table of keys. Every operation sets or deletes one, carries its running number, and is one
 * frame; what is live is re-appended when the tail is trimmed. After a crash the recovered table must be exactly the
 * one after operation v, where v is at least the last acknowledged operation and no batch is cut. One thread. */
#ifndef RDV_TESTS_LOG_WORLD_H
#define RDV_TESTS_LOG_WORLD_H
#include "base/random.h"
#include "log/faulty_files.h"
#include "log/log.h"

enum { WORLD_KEYS = 48, WORLD_OPS = 20000, WORLD_SEGMENT = 64 << 10 };

struct world_op {
	uint32_t key;
	bool deletes, more; /* more: the next operation belongs to the same batch */
};

struct world {
	struct rdv_faulty *files;
	struct rdv_random random;
	struct rdv_log *log;
	struct rdv_log_opened opened;
	struct rdv_error error;
	uint64_t ops_made, acked; /* operations; 1-based numbers */
	struct world_op ops[WORLD_OPS + 1];
	uint64_t latest[WORLD_KEYS];           /* operation that set the key, 0 = none */
	struct rdv_position place[WORLD_KEYS]; /* of its frame */
	uint32_t size[WORLD_KEYS];             /* of its payload */
	uint64_t tickets[WORLD_OPS + 1];
	/* while recovering */
	uint64_t seen_max;
	uint64_t last_frame;
	const char *wrong; /* what the fold did not like */
	uint32_t trims, hinted;
	bool equal_sizes; /* so that frames of a cut tail lie where new ones will */
};

void world_init(struct world *w, uint64_t seed);
void world_done(struct world *w);
enum redrive_status world_open(struct world *w) RDV_MUST_CHECK;
/* Some operations, as one batch or not. */
enum redrive_status world_append(struct world *w, uint32_t count, bool batch, uint32_t max_size) RDV_MUST_CHECK;
enum redrive_status world_commit(struct world *w) RDV_MUST_CHECK;
enum redrive_status world_maintain(struct world *w, int pieces) RDV_MUST_CHECK;
/* Re-appends what lives in the tail and gives it up; nothing if there is only one segment. */
enum redrive_status world_trim(struct world *w) RDV_MUST_CHECK;
/* A random step of the above. */
enum redrive_status world_step(struct world *w) RDV_MUST_CHECK;
/* Reads every live key back: NULL, or what is wrong. */
const char *world_read_back(struct world *w);
/* Closes, crashes (power or process) and opens again: NULL, or what is wrong. */
const char *world_crash(struct world *w, bool power);
#endif
