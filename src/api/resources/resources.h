/* resources.h - the operations, one file per resource; operations.c lists them. */
#ifndef RDV_API_RESOURCES_H
#define RDV_API_RESOURCES_H
#include "../exchange.h"

void rdv_resource_publish(struct rdv_exchange *x);
void rdv_resource_message_get(struct rdv_exchange *x);
void rdv_resource_messages_list(struct rdv_exchange *x);
void rdv_resource_message_revoke(struct rdv_exchange *x);

void rdv_resource_routes_list(struct rdv_exchange *x);
void rdv_resource_route_get(struct rdv_exchange *x);
void rdv_resource_route_pause(struct rdv_exchange *x);
void rdv_resource_route_resume(struct rdv_exchange *x);
void rdv_resource_route_release(struct rdv_exchange *x);
void rdv_resource_route_adopt(struct rdv_exchange *x);
void rdv_resource_route_discard(struct rdv_exchange *x);

void rdv_resource_lease_take(struct rdv_exchange *x);
void rdv_resource_lease_verdict(struct rdv_exchange *x);
void rdv_resource_lease_many(struct rdv_exchange *x);

void rdv_resource_letters_list(struct rdv_exchange *x);
void rdv_resource_letter_get(struct rdv_exchange *x);
void rdv_resource_letter_body(struct rdv_exchange *x);

void rdv_resource_plan_create(struct rdv_exchange *x);
void rdv_resource_plans_list(struct rdv_exchange *x);
void rdv_resource_plan_get(struct rdv_exchange *x);
void rdv_resource_plan_letters(struct rdv_exchange *x);
void rdv_resource_plan_act(struct rdv_exchange *x);

void rdv_resource_health(struct rdv_exchange *x);
void rdv_resource_ready(struct rdv_exchange *x);
void rdv_resource_metrics(struct rdv_exchange *x);
void rdv_resource_openapi(struct rdv_exchange *x);
void rdv_resource_whoami(struct rdv_exchange *x);
#endif
