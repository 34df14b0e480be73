#include "room.h"
enum redrive_status rdv_desk_replays_init(struct rdv_desk_replays *r, struct rdv_desk *desk)
{
	return REDRIVE_OK;
}
void rdv_desk_replays_done(struct rdv_desk_replays *r)
{
}
enum redrive_status rdv_desk_replays_start(struct rdv_desk_replays *r)
{
	return REDRIVE_OK;
}
void rdv_desk_replays_stop(struct rdv_desk_replays *r)
{
}
void rdv_desk_replays_wake(struct rdv_desk_replays *r)
{
}
void rdv_desk_outcome(struct rdv_desk *d, uint64_t plan, const uint8_t letter[16], enum rdv_state outcome,
		      uint32_t attempts, const char *route, const char *topic, uint32_t partition, uint64_t request)
{
}
