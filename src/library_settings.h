/* library_settings.h - "key=value" texts of the C API to options. Private to the library; any thread. */
#ifndef RDV_LIBRARY_SETTINGS_H
#define RDV_LIBRARY_SETTINGS_H
#include "runtime/engine.h"

/* INVALID names the setting. Settings may be NULL. */
enum redrive_status rdv_library_engine_settings(const char *const settings[], struct rdv_engine_options *out,
						struct rdv_error *error) RDV_MUST_CHECK;
/* Defaults first, then a preset if one is named, then the rest in order. `target` borrows from the settings. */
enum redrive_status rdv_library_route_settings(const char *const settings[], struct rdv_route_options *out,
					       struct rdv_error *error) RDV_MUST_CHECK;
#endif
