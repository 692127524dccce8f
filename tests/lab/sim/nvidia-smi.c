/* nvidia-smi of a lab node: prints what its state file says, in the forms that driver 580 prints.
 *
 * State, /run/node/gpus: lines of KEY=VALUE for the call, N.KEY=VALUE for GPU N, *.KEY=VALUE for all.
 * A GPU's keys are the names of --query-gpu, values without unit. More keys:
 *   hang=PATH     touches PATH first: on a dead mount that is state D, and it never comes back
 *   delay=SECONDS before the answer          stderr=TEXT   printed there, whatever the answer
 *   fail=TEXT     instead of an answer       exit=STATUS   of the call (0)
 *   N.lost=1      the GPU is left out although it counts, a line on stderr names it; status 0
 *   N.gone=1      the GPU is not there at all
 *   process=N,PID,NAME,MIB                   a compute process on GPU N */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GPUS 8
#define STATE "/run/node/gpus"
#define CLOCK "/run/node/clock"

static char *lines[512];
static int count;

struct field {
	const char *name, *unit, *value; /* as asked; behind the number; where the state is silent */
	const char *same_as;             /* the name under which the state has it */
};
static const struct field fields[] = {
	{"name", "", "NVIDIA B300 SXM6 AC", 0},
	{"gpu_name", "", 0, "name"},
	{"gpu_uuid", "", 0, "uuid"},
	{"gpu_bus_id", "", 0, "pci.bus_id"},
	{"uuid", "", "", 0},
	{"pci.bus_id", "", "", 0},
	{"index", "", "", 0},
	{"count", "", "", 0},
	{"timestamp", "", "", 0},
	{"driver_version", "", "580.95.05", 0},
	{"serial", "", "1650123000000", 0},
	{"pstate", "", "P0", 0},
	{"persistence_mode", "", "Enabled", 0},
	{"mig.mode.current", "", "Disabled", 0},
	{"gpu_recovery_action", "", "None", 0},
	{"utilization.gpu", "%", "0", 0},
	{"utilization.memory", "%", "0", 0},
	{"power.draw", "W", "190.00", 0},
	{"power.draw.average", "W", 0, "power.draw"},
	{"power.draw.instant", "W", 0, "power.draw"},
	{"enforced.power.limit", "W", "1100.00", 0},
	{"power.limit", "W", 0, "enforced.power.limit"},
	{"power.default_limit", "W", "1100.00", 0},
	{"clocks.sm", "MHz", "1920", 0},
	{"clocks.current.sm", "MHz", 0, "clocks.sm"},
	{"clocks.max.sm", "MHz", "1920", 0},
	{"memory.used", "MiB", "0", 0},
	{"memory.total", "MiB", "275040", 0},
	{"temperature.gpu", "", "38", 0},
	{"clocks_event_reasons.active", "", "0x0000000000000000", 0},
	{"clocks_throttle_reasons.active", "", 0, "clocks_event_reasons.active"},
	{"ecc.mode.current", "", "Enabled", 0},
	{"ecc.errors.corrected.volatile.total", "", "0", 0},
	{"ecc.errors.uncorrected.volatile.total", "", "0", 0},
	{"ecc.errors.corrected.aggregate.total", "", "0", 0},
	{"ecc.errors.uncorrected.aggregate.total", "", "0", 0},
	{"remapped_rows.correctable", "", "0", 0},
	{"remapped_rows.uncorrectable", "", "0", 0},
	{"remapped_rows.pending", "", "No", 0},
	{"remapped_rows.failure", "", "No", 0},
	{"pcie.replays", "", "0", 0},
	{"pcie.link.gen.current", "", "6", 0},
	{"pcie.link.gen.max", "", "6", 0},
	{"pcie.link.width.current", "", "16", 0},
	{"pcie.link.width.max", "", "16", 0},
	{"fabric.state", "", "Completed", 0},
	{"fabric.status", "", "Success", 0},
	{"fabric.health.bandwidth", "", "Full", 0},
};

struct line {
	int depth;
	const char *tag, *label, *key, *unit; /* a line without key opens a section; "=text" is itself */
};
static const struct line tree[] = {
	{0, "product_name", "Product Name", "name", ""},
	{0, "persistence_mode", "Persistence Mode", "persistence_mode", ""},
	{0, "mig_mode", "MIG Mode", 0, 0},
	{1, "current_mig", "Current", "mig.mode.current", ""},
	{0, "serial", "Serial Number", "serial", ""},
	{0, "uuid", "GPU UUID", "uuid", ""},
	{0, "minor_number", "Minor Number", "index", ""},
	{0, "gpu_recovery_action", "GPU Recovery Action", "gpu_recovery_action", ""},
	{0, "pci", "PCI", 0, 0},
	{1, "pci_bus_id", "Bus Id", "pci.bus_id", ""},
	{1, "pci_gpu_link_info", "GPU Link Info", 0, 0},
	{2, "pcie_gen", "PCIe Generation", 0, 0},
	{3, "max_link_gen", "Max", "pcie.link.gen.max", ""},
	{3, "current_link_gen", "Current", "pcie.link.gen.current", ""},
	{2, "link_widths", "Link Width", 0, 0},
	{3, "max_link_width", "Max", "pcie.link.width.max", "x"},
	{3, "current_link_width", "Current", "pcie.link.width.current", "x"},
	{1, "replay_counter", "Replays Since Reset", "pcie.replays", ""},
	{0, "performance_state", "Performance State", "pstate", ""},
	{0, "clocks_event_reasons", "Clocks Event Reasons", 0, 0},
	{1, "clocks_event_reason_gpu_idle", "Idle", "&1", ""},
	{1, "clocks_event_reason_applications_clocks_setting", "Applications Clocks Setting", "&2", ""},
	{1, "clocks_event_reason_sw_power_cap", "SW Power Cap", "&4", ""},
	{1, "clocks_event_reason_hw_slowdown", "HW Slowdown", "&8", ""},
	{1, "clocks_event_reason_hw_thermal_slowdown", "HW Thermal Slowdown", "&64", ""},
	{1, "clocks_event_reason_hw_power_brake_slowdown", "HW Power Brake Slowdown", "&128", ""},
	{1, "clocks_event_reason_sync_boost", "Sync Boost", "&16", ""},
	{1, "clocks_event_reason_sw_thermal_slowdown", "SW Thermal Slowdown", "&32", ""},
	{0, "fb_memory_usage", "FB Memory Usage", 0, 0},
	{1, "total", "Total", "memory.total", " MiB"},
	{1, "used", "Used", "memory.used", " MiB"},
	{0, "utilization", "Utilization", 0, 0},
	{1, "gpu_util", "GPU", "utilization.gpu", " %"},
	{1, "memory_util", "Memory", "utilization.memory", " %"},
	{0, "ecc_mode", "ECC Mode", 0, 0},
	{1, "current_ecc", "Current", "ecc.mode.current", ""},
	{0, "ecc_errors", "ECC Errors", 0, 0},
	{1, "volatile", "Volatile", 0, 0},
	{2, "sram_correctable", "SRAM Correctable", "=0", ""},
	{2, "sram_uncorrectable_parity", "SRAM Uncorrectable Parity", "=0", ""},
	{2, "sram_uncorrectable_secded", "SRAM Uncorrectable SEC-DED", "=0", ""},
	{2, "dram_correctable", "DRAM Correctable", "ecc.errors.corrected.volatile.total", ""},
	{2, "dram_uncorrectable", "DRAM Uncorrectable", "ecc.errors.uncorrected.volatile.total", ""},
	{1, "aggregate", "Aggregate", 0, 0},
	{2, "sram_correctable", "SRAM Correctable", "=0", ""},
	{2, "sram_uncorrectable_parity", "SRAM Uncorrectable Parity", "=0", ""},
	{2, "sram_uncorrectable_secded", "SRAM Uncorrectable SEC-DED", "=0", ""},
	{2, "dram_correctable", "DRAM Correctable", "ecc.errors.corrected.aggregate.total", ""},
	{2, "dram_uncorrectable", "DRAM Uncorrectable", "ecc.errors.uncorrected.aggregate.total", ""},
	{2, "sram_threshold_exceeded", "SRAM Threshold Exceeded", "=No", ""},
	{1, "channel_repair_pending", "Channel Repair Pending", "=No", ""},
	{1, "tpc_repair_pending", "TPC Repair Pending", "=No", ""},
	{0, "remapped_rows", "Remapped Rows", 0, 0},
	{1, "remapped_row_corr", "Correctable Error", "remapped_rows.correctable", ""},
	{1, "remapped_row_unc", "Uncorrectable Error", "remapped_rows.uncorrectable", ""},
	{1, "remapped_row_pending", "Pending", "remapped_rows.pending", ""},
	{1, "remapped_row_failure", "Remapping Failure Occurred", "remapped_rows.failure", ""},
	{0, "temperature", "Temperature", 0, 0},
	{1, "gpu_temp", "GPU Current Temp", "temperature.gpu", " C"},
	{0, "gpu_power_readings", "GPU Power Readings", 0, 0},
	{1, "average_power_draw", "Average Power Draw", "power.draw", " W"},
	{1, "instant_power_draw", "Instantaneous Power Draw", "power.draw", " W"},
	{1, "current_power_limit", "Current Power Limit", "enforced.power.limit", " W"},
	{1, "default_power_limit", "Default Power Limit", "power.default_limit", " W"},
	{0, "clocks", "Clocks", 0, 0},
	{1, "sm_clock", "SM", "clocks.sm", " MHz"},
	{0, "max_clocks", "Max Clocks", 0, 0},
	{1, "sm_clock", "SM", "clocks.max.sm", " MHz"},
	{0, "fabric", "Fabric", 0, 0},
	{1, "state", "State", "fabric.state", ""},
	{1, "status", "Status", "fabric.status", ""},
	{1, "health", "Health", 0, 0},
	{2, "bandwidth", "Bandwidth", "fabric.health.bandwidth", ""},
};

static void read_state(void)
{
	char *line = NULL;
	size_t room = 0;
	FILE *file;

	while (count > 0)
		free(lines[--count]);
	file = fopen(STATE, "r");
	if (!file)
		return;
	while (count < 512 && getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = 0;
		if (strchr(line, '='))
			lines[count++] = strdup(line);
	}
	free(line);
	fclose(file);
}

static const char *state(const char *key)
{
	size_t length = strlen(key);

	for (int i = count - 1; i >= 0; i--) /* the last word counts */
		if (!strncmp(lines[i], key, length) && lines[i][length] == '=')
			return lines[i] + length + 1;
	return NULL;
}

static const char *text(const char *form, ...)
{
	static char rooms[16][256];
	static int next;
	char *room = rooms[next++ % 16];
	va_list rest;

	va_start(rest, form);
	vsnprintf(room, sizeof rooms[0], form, rest);
	va_end(rest);
	return room;
}

static const char *now(const char *form)
{
	struct timespec at;
	struct tm parts;
	char room[64];
	double ahead = 0;
	FILE *file = fopen(CLOCK, "r");

	clock_gettime(CLOCK_REALTIME, &at);
	if (file) {
		if (fscanf(file, "%lf", &ahead) == 1)
			at.tv_sec += (time_t)ahead;
		fclose(file);
	}
	localtime_r(&at.tv_sec, &parts);
	strftime(room, sizeof room, form, &parts);
	return strstr(form, "%b") ? text("%s", room) : text("%s.%03ld", room, at.tv_nsec / 1000000);
}

static const struct field *find(const char *name)
{
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (!strcmp(fields[i].name, name))
			return &fields[i];
	return NULL;
}

static int gone(int gpu) { return state(text("%d.gone", gpu)) != NULL; }
static int lost(int gpu) { return gone(gpu) || state(text("%d.lost", gpu)) != NULL; }

/* what the driver counts, lost ones too */
static int attached(void)
{
	int n = 0;

	for (int gpu = 0; gpu < GPUS; gpu++)
		n += !gone(gpu);
	return n;
}

static const char *bus(int gpu)
{
	static const int numbers[GPUS] = {0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf};

	return text("00000000:%02X:00.0", numbers[gpu]);
}

static const char *uuid(int gpu)
{
	char host[64] = "";
	unsigned sum = 5381;

	gethostname(host, sizeof host - 1);
	for (char *c = host; *c; c++)
		sum = sum * 33 + (unsigned char)*c;
	return text("GPU-%08x-5b30-4c1e-8d27-%012x", sum, gpu + 1);
}

static const char *value(int gpu, const char *name)
{
	const struct field *field = find(name);
	const char *found;

	if (field && field->same_as)
		return value(gpu, field->same_as);
	found = state(text("%d.%s", gpu, name));
	if (!found)
		found = state(text("*.%s", name));
	if (found)
		return found;
	if (!strcmp(name, "index"))
		return text("%d", gpu);
	if (!strcmp(name, "count"))
		return text("%d", attached());
	if (!strcmp(name, "uuid"))
		return uuid(gpu);
	if (!strcmp(name, "pci.bus_id"))
		return bus(gpu);
	if (!strcmp(name, "timestamp"))
		return now("%Y/%m/%d %H:%M:%S");
	return field ? field->value : "";
}

/* A unit stands behind numbers only: "[N/A]" and "[Unknown Error]" have none. */
static const char *with_unit(const char *bare, const char *unit)
{
	return *bare >= '0' && *bare <= '9' ? text("%s%s", bare, unit) : bare;
}

static const char *tree_value(int gpu, const struct line *line)
{
	unsigned long active;

	if (line->key[0] == '=')
		return line->key + 1;
	if (line->key[0] == '&') {
		active = strtoul(value(gpu, "clocks_event_reasons.active"), NULL, 16);
		return active & strtoul(line->key + 1, NULL, 10) ? "Active" : "Not Active";
	}
	return with_unit(value(gpu, line->key), line->unit);
}

/* The next process of a GPU: sets pid, name and MiB, and says where to go on; -1 at the end. */
static int process(int from, int gpu, char *pid, char *name, char *mib)
{
	for (int i = from; i < count; i++) {
		int on;

		if (sscanf(lines[i], "process=%d,%15[^,],%199[^,],%15s", &on, pid, name, mib) == 4 && on == gpu)
			return i + 1;
	}
	return -1;
}

static void print_xml(int only)
{
	static const char tabs[] = "\t\t\t\t\t\t\t\t";
	char pid[16], name[200], mib[16];
	const size_t end = sizeof tree / sizeof *tree;

	printf("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n"
	       "<nvidia_smi_log>\n\t<timestamp>%s</timestamp>\n\t<driver_version>%s</driver_version>\n"
	       "\t<cuda_version>13.0</cuda_version>\n\t<attached_gpus>%d</attached_gpus>\n",
	       now("%a %b %e %H:%M:%S %Y"), value(0, "driver_version"), attached());
	for (int gpu = 0; gpu < GPUS; gpu++) {
		const char *open[8];
		int depth = 0;

		if (lost(gpu) || (only >= 0 && only != gpu))
			continue;
		printf("\t<gpu id=\"%s\">\n", value(gpu, "pci.bus_id"));
		for (size_t i = 0; i < end; i++) {
			while (depth > tree[i].depth)
				depth--, printf("%.*s</%s>\n", depth + 2, tabs, open[depth]);
			printf("%.*s<%s>", tree[i].depth + 2, tabs, tree[i].tag);
			if (tree[i].key)
				printf("%s</%s>\n", tree_value(gpu, &tree[i]), tree[i].tag);
			else
				open[depth++] = tree[i].tag, putchar('\n');
		}
		while (depth > 0)
			depth--, printf("%.*s</%s>\n", depth + 2, tabs, open[depth]);
		printf("\t\t<processes>\n");
		for (int i = 0; (i = process(i, gpu, pid, name, mib)) > 0;)
			printf("\t\t\t<process_info>\n\t\t\t\t<pid>%s</pid>\n\t\t\t\t<type>C</type>\n"
			       "\t\t\t\t<process_name>%s</process_name>\n"
			       "\t\t\t\t<used_memory>%s MiB</used_memory>\n\t\t\t</process_info>\n",
			       pid, name, mib);
		printf("\t\t</processes>\n\t</gpu>\n");
	}
	printf("</nvidia_smi_log>\n");
}

static void print_text(int only)
{
	char pid[16], name[200], mib[16];

	printf("\n==============NVSMI LOG==============\n\n%-54s : %s\n%-54s : %s\n%-54s : 13.0\n\n%-54s : %d\n",
	       "Timestamp", now("%a %b %e %H:%M:%S %Y"), "Driver Version", value(0, "driver_version"),
	       "CUDA Version", "Attached GPUs", attached());
	for (int gpu = 0; gpu < GPUS; gpu++) {
		int any = 0;

		if (lost(gpu) || (only >= 0 && only != gpu))
			continue;
		printf("GPU %s\n", value(gpu, "pci.bus_id"));
		for (size_t i = 0; i < sizeof tree / sizeof *tree; i++) {
			const char *label = text("%*s%s", 4 * tree[i].depth + 4, "", tree[i].label);

			if (tree[i].key)
				printf("%-54s : %s\n", label, tree_value(gpu, &tree[i]));
			else
				printf("%s\n", label);
		}
		for (int i = 0; (i = process(i, gpu, pid, name, mib)) > 0; any = 1) {
			if (!any)
				printf("    Processes\n");
			printf("        %-46s : N/A\n            %-42s : %s\n            %-42s : C\n"
			       "                %-38s : %s\n                %-38s : %s MiB\n",
			       "GPU instance ID", "Process ID", pid, "Type", "Name", name, "Used GPU Memory", mib);
		}
		if (!any)
			printf("%-54s : None\n", "    Processes");
		printf("\n");
	}
}

static void print_table(int only)
{
	static const char rule[] = "+-----------------------------------------+------------------------+----------------------+";
	static const char wide[] = "+-----------------------------------------------------------------------------------------+";
	char pid[16], name[200], mib[16];
	int any = 0;

	printf("%s\n%s\n| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: 13.0     |\n%s\n", now("%a %b %e %H:%M:%S %Y"),
	       wide, value(0, "driver_version"), value(0, "driver_version"), rule);
	printf("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
	       "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
	       "|                                         |                        |               MIG M. |\n"
	       "|=========================================+========================+======================|\n");
	for (int gpu = 0; gpu < GPUS; gpu++) {
		if (lost(gpu) || (only >= 0 && only != gpu))
			continue;
		printf("| %3d  %-27s    On  |   %s Off | %20s |\n", gpu, value(gpu, "name"), value(gpu, "pci.bus_id"),
		       value(gpu, "ecc.errors.uncorrected.volatile.total"));
		printf("| N/A  %3sC    %s          %4.0fW / %4.0fW | %7sMiB / %6sMiB | %6s%%      Default |\n",
		       value(gpu, "temperature.gpu"), value(gpu, "pstate"), atof(value(gpu, "power.draw")),
		       atof(value(gpu, "enforced.power.limit")), value(gpu, "memory.used"),
		       value(gpu, "memory.total"), value(gpu, "utilization.gpu"));
		printf("|                                         |                        | %20s |\n%s\n",
		       value(gpu, "mig.mode.current"), rule);
	}
	printf("\n%s\n| Processes:%-78s|\n|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n"
	       "|        ID   ID                                                               Usage      |\n"
	       "|=========================================================================================|\n", wide, "");
	for (int gpu = 0; gpu < GPUS; gpu++)
		for (int i = 0; !lost(gpu) && (i = process(i, gpu, pid, name, mib)) > 0; any = 1)
			printf("| %4d   N/A  N/A %16s      C   %-33.33s %8sMiB |\n", gpu, pid, name, mib);
	if (!any)
		printf("|  No running processes found                                                             |\n");
	printf("%s\n", wide);
}

static const char *header(const char *name, const struct field *field, int units)
{
	if (!strcmp(name, "clocks_throttle_reasons.active"))
		name = "clocks_event_reasons.active"; /* the renamed field answers with its new name */
	return units && *field->unit ? text("%s [%s]", name, field->unit) : name;
}

static int print_csv(const char *asked, const char *form, int only, int first)
{
	const int units = !strstr(form, "nounits");
	const struct field *chosen[64];
	char *copy = strdup(asked), *rest = copy, *name;
	int n = 0;

	for (; (name = strsep(&rest, ",")) && n < 64; n++) {
		name += strspn(name, " ");
		chosen[n] = find(name);
		if (!chosen[n]) {
			printf("Field \"%s\" is not a valid field to query.\n\n", name);
			return 2;
		}
	}
	if (first && !strstr(form, "noheader"))
		for (int i = 0; i < n; i++)
			printf("%s%s", header(chosen[i]->name, chosen[i], units), i + 1 < n ? ", " : "\n");
	for (int gpu = 0; gpu < GPUS; gpu++) {
		if (lost(gpu) || (only >= 0 && only != gpu))
			continue;
		for (int i = 0; i < n; i++) {
			const char *bare = value(gpu, chosen[i]->name);

			if (units && *chosen[i]->unit)
				bare = with_unit(bare, text(" %s", chosen[i]->unit));
			printf("%s%s", bare, i + 1 < n ? ", " : "\n");
		}
	}
	free(copy);
	return 0;
}

static int print_apps(const char *asked, const char *form)
{
	const int units = !strstr(form, "nounits");
	char pid[16], name[200], mib[16];

	if (!strstr(form, "noheader")) {
		char *copy = strdup(asked), *rest = copy, *one;

		while ((one = strsep(&rest, ",")))
			printf("%s%s%s", one, units && strstr(one, "memory") ? " [MiB]" : "", rest ? ", " : "\n");
		free(copy);
	}
	for (int gpu = 0; gpu < GPUS; gpu++)
		for (int i = 0; !lost(gpu) && (i = process(i, gpu, pid, name, mib)) > 0;) {
			char *copy = strdup(asked), *rest = copy, *one;

			while ((one = strsep(&rest, ","))) {
				const char *shown = "[N/A]";

				if (!strcmp(one, "pid"))
					shown = pid;
				else if (strstr(one, "name"))
					shown = strstr(one, "gpu") ? value(gpu, "name") : name;
				else if (strstr(one, "memory"))
					shown = units ? text("%s MiB", mib) : mib;
				else if (find(one))
					shown = value(gpu, one);
				printf("%s%s", shown, rest ? ", " : "\n");
			}
			free(copy);
		}
	return 0;
}

static int answer(const char *asked, const char *apps, const char *form, int mode, int only, int first)
{
	const char *told;
	char byte;
	struct stat about;
	int file;

	read_state();
	if ((told = state("hang"))) {
		if (!stat(told, &about) && (file = open(told, O_RDONLY)) >= 0) {
			if (read(file, &byte, 1) < 0)
				perror(told);
			close(file);
		}
	}
	if ((told = state("delay")))
		usleep((useconds_t)(atof(told) * 1e6));
	if ((told = state("stderr")))
		fprintf(stderr, "%s\n", told);
	if ((told = state("fail"))) {
		printf("%s\n", told);
		return 1;
	}
	for (int gpu = 0; first && gpu < GPUS; gpu++)
		if (lost(gpu) && !gone(gpu))
			fprintf(stderr, "Unable to determine the device handle for GPU%d: %s: Unknown Error\n", gpu,
				bus(gpu) + 4);
	if (asked)
		return print_csv(asked, form, only, first);
	if (apps)
		return print_apps(apps, form);
	if (mode == 'L')
		for (int gpu = 0; gpu < GPUS; gpu++) {
			if (!lost(gpu))
				printf("GPU %d: %s (UUID: %s)\n", gpu, value(gpu, "name"), value(gpu, "uuid"));
		}
	else if (mode == 'x')
		print_xml(only);
	else if (mode == 'q')
		print_text(only);
	else
		print_table(only);
	return 0;
}

int main(int argc, char **argv)
{
	const char *asked = NULL, *apps = NULL, *form = "csv", *told;
	int mode = 't', only = -1, every = 0, status;

	for (int i = 1; i < argc; i++) {
		const char *word = argv[i], *equals = strchr(word, '=');

		if (!strncmp(word, "--query-gpu=", 12))
			asked = equals + 1;
		else if (!strncmp(word, "--query-compute-apps=", 21))
			apps = equals + 1;
		else if (!strncmp(word, "--format=", 9))
			form = equals + 1;
		else if (!strcmp(word, "-L") || !strcmp(word, "--list-gpus"))
			mode = 'L';
		else if (!strcmp(word, "-q") || !strcmp(word, "--query"))
			mode = mode == 'x' ? 'x' : 'q';
		else if (!strcmp(word, "-x") || !strcmp(word, "--xml-format"))
			mode = 'x';
		else if (!strcmp(word, "-i") && i + 1 < argc)
			only = atoi(argv[++i]);
		else if (!strcmp(word, "-l"))
			every = i + 1 < argc ? atoi(argv[++i]) : 5;
		else if (!strncmp(word, "--loop=", 7))
			every = atoi(equals + 1);
		else {
			printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
			return 2;
		}
	}
	for (int first = 1;; first = 0) {
		status = answer(asked, apps, form, mode, only, first);
		fflush(stdout);
		if (!every || status || ferror(stdout))
			break;
		sleep(every);
	}
	told = state("exit");
	return told ? atoi(told) : status == 1 ? 9 : status;
}
