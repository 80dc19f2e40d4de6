import { Controller, Get, Param, Post } from '@nestjs/common';
import { type Infer, json, JsonBody } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { adminPagesPath } from '@rookery/module-api';
import { type CallbackReport, ModuleDispatcher, type ModuleReport } from '@rookery/module-host';
import { admin, AdminAccess } from '../http/admin-endpoint.js';

const checkSchema = json.object({
  config: json.required('The configuration that the module would get.', json.unknown()),
});

/** How the modules of this process do, and what can be set. */
@Controller()
@AdminAccess()
export class ModulesController {
  constructor(private readonly modules: ModuleDispatcher) {}

  /** GET /_synapse/admin/v1/modules */
  @Get(admin('v1', '/modules'))
  async list(): Promise<object> {
    const pages = new Map(this.modules.summary().map(({ module, paths }) => [module, adminPagesOf(module, paths)]));
    const reports = await this.modules.report();
    return { modules: reports.map((report) => toWire(report, pages.get(report.name) ?? [])) };
  }

  /** GET /_synapse/admin/v1/modules/{name}/settings: without what is secret */
  @Get(admin('v1', '/modules/:name/settings'))
  async settings(@Param('name') name: string): Promise<object> {
    const { entry, settings } = await this.#named(name);
    const { schema, config, withheld } = settings;
    return { entry, schema: schema ?? null, config: config ?? null, withheld };
  }

  /** POST /_synapse/admin/v1/modules/{name}/settings/check: whether the module would take another `config`; nothing is changed */
  @Post(admin('v1', '/modules/:name/settings/check'))
  async check(@Param('name') name: string, @JsonBody(checkSchema) body: Infer<typeof checkSchema>): Promise<object> {
    const { settings } = await this.#named(name);
    const problems = settings.check(body.config);
    return { tried: problems !== undefined, problems: (problems ?? []).map((message) => ({ message })) };
  }

  async #named(name: string): Promise<ModuleReport> {
    const found = (await this.modules.report()).find((report) => report.name === name);
    if (!found) throw MatrixError.notFound('There is no such module');
    return found;
  }
}

/** The pages of a module for administrators, by their ids. */
const adminPagesOf = (module: string, paths: readonly string[]): string[] => {
  const prefix = `${adminPagesPath}${module}/`;
  return paths.filter((path) => path.startsWith(prefix)).map((path) => path.slice(prefix.length));
};

function toWire({ thread, ...module }: ModuleReport, adminPages: readonly string[]): object {
  return {
    name: module.name,
    entry: module.entry,
    url: module.url,
    api_version: module.apiVersion,
    shadow: module.isShadow,
    on_error: module.onError,
    admin_pages: adminPages,
    callbacks: module.callbacks.map(callbackToWire),
    thread: thread
      ? {
          memory_bytes: Number.isNaN(thread.heapBytes) ? null : thread.heapBytes,
          busy: thread.busy,
          waiting: thread.waiting,
        }
      : null,
    shadow_refusals: module.shadowRefusals.map((refusal) => ({
      ts: refusal.atMs,
      callback: refusal.callback,
      errcode: refusal.errcode,
      message: refusal.message,
      asked_for: refusal.askedFor,
      room_id: refusal.roomId ?? null,
      event_type: refusal.eventType ?? null,
    })),
  };
}

function callbackToWire({ lastError, ...callback }: CallbackReport): object {
  return {
    name: callback.name,
    calls: callback.calls,
    outcomes: callback.outcomes,
    mean_ms: callback.meanMs ?? null,
    p50_ms: callback.p50Ms ?? null,
    p95_ms: callback.p95Ms ?? null,
    suspended: callback.isSuspended,
    suspended_for: callback.suspendedFor,
    last_error: lastError ? { ts: lastError.atMs, outcome: lastError.outcome, message: lastError.message } : null,
  };
}
