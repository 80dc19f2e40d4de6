import type { CallbackName } from '@rookery/module-api';
import type { CallbackFigures, LastError, ModuleFigures, ShadowRefusal } from './figures.js';
import type { LoadedModule } from './loader.js';
import { type ModuleSettings, settingsOf } from './module-settings.js';
import type { Handler } from './registry.js';
import { isDead } from './watch.js';

/** How one callback of a module does. */
export interface CallbackReport {
  readonly name: CallbackName;
  readonly calls: number;
  readonly outcomes: CallbackFigures['outcomes'];
  readonly meanMs: number | undefined;
  /** Bounds that half and 95 of 100 calls stayed within. */
  readonly p50Ms: number | undefined;
  readonly p95Ms: number | undefined;
  /** Whether it is not asked now, because it hung; for how many askers otherwise. */
  readonly isSuspended: boolean;
  readonly suspendedFor: number;
  readonly lastError: LastError | undefined;
}

/** How one module does. */
export interface ModuleReport {
  readonly name: string;
  /** As the settings call it. */
  readonly entry: string;
  readonly url: string;
  readonly apiVersion: string;
  readonly isShadow: boolean;
  readonly onError: 'deny' | 'allow';
  readonly callbacks: readonly CallbackReport[];
  /** Of its thread, where it has one: memory of its heap, and the share of its time that it was busy since it was last looked at. */
  readonly thread: { readonly heapBytes: number; readonly busy: number; readonly waiting: number } | undefined;
  /** What it would have refused of late, when it runs in shadow. */
  readonly shadowRefusals: readonly ShadowRefusal[];
  readonly settings: ModuleSettings;
}

/** Puts together what is known of a module. */
export async function reportOf(
  module: LoadedModule,
  { counted, handlers }: { readonly counted: ModuleFigures; readonly handlers: readonly Handler[] },
  nowMs: number,
): Promise<ModuleReport> {
  const { entry, definition, url, thread } = module;
  const { name, apiVersion } = definition;
  const figures = counted.ofModule(name);
  const own = handlers.filter((handler) => handler.module === name);
  // One registered by its deprecated name is listed by both.
  const callbacks = [...new Map(own.map((handler) => [handler.callback, handler])).values()];
  return {
    ...{ name, entry: entry.module, url, apiVersion, isShadow: entry.shadow === true, onError: entry.onError },
    callbacks: callbacks.map((handler) => callbackReport(handler, figures.get(handler.callback), nowMs)),
    thread: await thread?.figures(),
    shadowRefusals: counted.shadowedOf(name),
    settings: settingsOf(module),
  };
}

function callbackReport(handler: Handler, figures: CallbackFigures | undefined, nowMs: number): CallbackReport {
  const calls = figures?.calls ?? 0;
  return {
    name: handler.callback,
    calls,
    outcomes: { ...figures?.outcomes },
    meanMs: figures && calls > 0 ? figures.totalMs / calls : undefined,
    p50Ms: figures?.quantileMs(0.5),
    p95Ms: figures?.quantileMs(0.95),
    isSuspended: isDead(handler),
    suspendedFor: [...handler.health.hung.values()].filter(({ suspendedUntilMs }) => suspendedUntilMs > nowMs).length,
    lastError: figures?.lastError,
  };
}
