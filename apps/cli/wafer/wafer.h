// heddle wafer: language models on a PLMR device, by an analytical model and by simulation. What its verbs share; one
// file per verb.
#pragma once

#include <optional>
#include <string>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_baselines.h"
#include "wafer/cost/wafer_cost.h"
#include "wafer/programs/kv_rows.h"

namespace CLI {
class App;
}

namespace heddle {

struct WaferOutput {
  std::string device = "wse-2";
  std::optional<double> sram_bytes;  // of a core, in place of the device's
  bool json = false, csv = false;
};

// --device, --sram-bytes and --json. `output` must outlive `command`.
void add_wafer_output_options(CLI::App& command, WaferOutput& output);

// --csv, likewise.
void add_csv_option(CLI::App& command, WaferOutput& output);

// The device that the options name. Throws as open_plmr_device, and InputError where both --csv and --json are given.
PlmrDevice open_device(const WaferOutput& output);

// "420" (the side) or "420x360" (cores along x, cores along y). Sides below 3 are rejected where the mesh is used.
void add_mesh_option(CLI::App& command, const std::string& name, std::optional<WaferMesh>& target,
                     const std::string& description);

// --kv shift|concat into `target`, which must outlive `command`.
void add_kv_option(CLI::App& command, KvMethod& target, const std::string& description);

// A model's name in weights/shapes.h, and its sizes.
struct NamedWaferModel {
  std::string name;
  WaferModel sizes;
};

// Opens NAME, synth:NAME, a Hugging Face config.json or a folder with one. Throws InputError that lists the names, or
// names the missing field.
NamedWaferModel open_wafer_model(const std::string& name_or_config);

// The meshes on which the paper runs a model end to end (section 7.1); all models but llama-2-13b have those of
// llama-3-8b.
struct WaferModelMeshes {
  WaferMesh prefill, decode;
};
WaferModelMeshes default_meshes(const std::string& model_name);

// A default mesh on a device: `mesh`, or the device's largest square if that is smaller.
WaferMesh mesh_on(const PlmrDevice& device, WaferMesh mesh);

// "waferllm", "t10" or "ladder".
WaferMethod wafer_method(const std::string& name);

// "dataflow", "rendezvous" or "barrier".
WaferSync wafer_sync(const std::string& name);
const char* name_of(WaferSync sync);

// The verbs.
void add_wafer_gemm(CLI::App& wafer);
void add_wafer_gemv(CLI::App& wafer);
void add_wafer_predict(CLI::App& wafer);
void add_wafer_kv(CLI::App& wafer);
void add_wafer_tune(CLI::App& wafer);
void add_wafer_sweep(CLI::App& wafer);
void add_wafer_tables(CLI::App& wafer);
void add_wafer_run(CLI::App& wafer);

}  // namespace heddle
