/* fuzz_config.c - configuration files: never a crash; either there are errors or what is printed as effective loads
 * again. */
#include <stdlib.h>
#include "app/settings.h"

#define CHECK(c)                                                                                                       \
	do {                                                                                                           \
		if (!(c))                                                                                              \
			abort();                                                                                       \
	} while (0)

static enum redrive_status load(struct rdv_settings *s, struct rdv_findings *f, struct rdv_slice text)
{
	memset(f, 0, sizeof *f);
	if (rdv_settings_init(s) != REDRIVE_OK)
		abort();
	return rdv_settings_load(s, "fuzz.yaml", &text, f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rdv_settings s, again;
	struct rdv_findings f;
	enum redrive_status status = load(&s, &f, rdv_slice(data, size));
	CHECK((status == REDRIVE_OK) == (f.errors == 0));
	rdv_findings_done(&f);
	if (status == REDRIVE_OK) {
		struct rdv_buffer text;
		rdv_buffer_init(&text, 0);
		rdv_settings_print(&s, &text);
		CHECK(load(&again, &f, rdv_buffer_as_slice(&text)) == REDRIVE_OK);
		rdv_findings_done(&f);
		rdv_settings_done(&again);
		rdv_buffer_done(&text);
	}
	rdv_settings_done(&s);
	return 0;
}
