/** What runs in the thread of a module: loads it, lends it the API, and carries its callbacks out. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { readlinkSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { ConfigError, type RookeryModule } from '@rookery/module-api';
import { ModuleLoadError } from './errors.js';
import { importDefinition, parseConfig, problemsOf } from './definition.js';
import { apiInThread, type ApiSurface, type Slots } from './thread-api.js';
import { holdTo } from './thread-hold.js';
import { Peer } from './thread-peer.js';
import type { Lent } from './thread-values.js';
import { answerPolls } from './thread-polls.js';
import type { LoadedInThread, ThreadData } from './module-thread.js';

const lookAtMemoryEveryMs = 1_000;

const data = workerData as ThreadData;
const {
  port,
  answers,
  time,
  module,
  configDir,
  config,
  settingsOption,
  installedIn,
  memoryLimitBytes,
  manifest,
  polls,
} = data;
// What belongs to the wire is not for the module.
for (const key of Object.keys(data)) delete (data as unknown as Record<string, unknown>)[key];
parentPort?.unref();
try {
  time[3] = Number(readlinkSync('/proc/thread-self').split('/').at(-1));
} catch {
  // Only Linux tells.
}

const calls = new AsyncLocalStorage<number>();
const slots: Slots = new Map();
let definition: RookeryModule | undefined;
let checked: unknown;

/** The server's clock, which tests may set: what it differs by from the thread's stands in shared memory. */
const clock = {
  nowMs: () => Math.round(performance.timeOrigin + performance.now() + time[0]!),
  monotonicMs: () => performance.now() + time[1]!,
};

const own: Readonly<Record<string, Lent>> = {
  async load(): Promise<LoadedInThread> {
    try {
      if (manifest) holdTo(manifest);
      const loaded = await importDefinition(
        { module, installedIn, ...(settingsOption ? { settingsOption } : {}) },
        configDir,
      );
      definition = loaded.definition;
      checked = parseConfig(definition, config);
      const { name, apiVersion, configJsonSchema } = definition;
      return { name, apiVersion, warnings: loaded.warnings, configJsonSchema };
    } catch (error) {
      if (!(error instanceof ModuleLoadError)) throw error;
      const { module, problem, cause } = error;
      return { module, problems: ConfigError.is(cause) ? problemsOf(cause) : [{ problem, path: [] }] };
    }
  },
  async register(surface) {
    await definition?.register(apiInThread(peer, surface as ApiSurface, slots, clock), checked);
  },
};

const peer = new Peer(port, {
  named: (name) => slots.get(name) ?? (Object.hasOwn(own, name) ? own[name] : undefined),
  around: (callId, _cause, work) => calls.run(callId, work),
  // Nothing but the next question runs behind it there, and a way back costs as much as the way in.
  enter: (callId) => calls.enterWith(callId),
  cause: () => calls.getStore(),
  freezes: true,
  answers: { port: answers, receive: (from: MessagePort) => receiveMessageOnPort(from)?.message as unknown },
});
port.on('message', (message) => peer.receive(message));
// A module may change what it finds in its thread.
const resources = process.getActiveResourcesInfo.bind(process);
/** The port alone. */
const idle = 1;
if (polls) {
  void answerPolls(polls, {
    carryOut: (call) => peer.carryOut(call),
    isAtRest: () => peer.isAtRest,
    isBusy: () => resources().length > idle,
    rested: (ms) => (time[2]! += ms),
  });
}

// As in the server's own process: what a module lets escape is written down, and the module goes on.
process.on('uncaughtException', (error) => peer.post('escaped', ['exception', error]));
process.on('unhandledRejection', (error) => peer.post('escaped', ['rejection', error]));

// The engine's own limit does not count what lies outside its heap: buffers above all.
setInterval(() => {
  const { external_memory: bytes } = getHeapStatistics();
  if (bytes <= memoryLimitBytes) return;
  peer.post('ending', [`it used more than its memory limit of ${Math.round(memoryLimitBytes / 1_048_576)} MiB`]);
  process.exit(1);
}, lookAtMemoryEveryMs).unref();
