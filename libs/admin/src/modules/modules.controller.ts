import { Controller, Get } from '@nestjs/common';
import { type CallbackReport, ModuleDispatcher, type ModuleReport } from '@rookery/module-host';
import { admin, AdminAccess } from '../http/admin-endpoint.js';

/** How the modules of this process do. */
@Controller()
@AdminAccess()
export class ModulesController {
  constructor(private readonly modules: ModuleDispatcher) {}

  /** GET /_synapse/admin/v1/modules */
  @Get(admin('v1', '/modules'))
  async list(): Promise<object> {
    return { modules: (await this.modules.report()).map(toWire) };
  }
}

function toWire({ thread, ...module }: ModuleReport): object {
  return {
    name: module.name,
    entry: module.entry,
    url: module.url,
    api_version: module.apiVersion,
    shadow: module.isShadow,
    on_error: module.onError,
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
