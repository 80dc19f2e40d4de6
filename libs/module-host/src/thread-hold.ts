import { registerHooks } from 'node:module';
import { Socket } from 'node:net';
import { isHostAllowed, type ModuleManifest } from './manifest.js';

/** What a module could reach anything with, whatever its manifest says. */
const closed = new Set(['child_process', 'cluster', 'dgram', 'inspector', 'worker_threads', 'vm', 'repl']);

/**
 * Holds this thread to a manifest: sockets go to its hosts only, and what would lead around that is not there. Against mistakes and
 * surprises, not against malice: the thread is one of the server's process.
 */
export function holdTo({ hosts }: ModuleManifest): void {
  registerHooks({
    resolve(asked, context, next) {
      const name = asked.replace(/^node:/, '').split('/')[0] ?? '';
      if (closed.has(name)) throw new Error(`A module with a manifest cannot use ${asked} in a thread of its own`);
      return next(asked, context);
    },
  });
  if (hosts.includes('*')) return;
  const { connect } = Socket.prototype;
  Socket.prototype.connect = function (this: Socket, ...args: unknown[]): Socket {
    const host = hostOf(args);
    if (isHostAllowed(hosts, host)) return Reflect.apply(connect, this, args) as Socket;
    this.destroy(new Error(`The manifest of this module does not name the host ${host}`));
    return this;
  } as Socket['connect'];
}

/** The host that the arguments of `connect` mean. */
function hostOf(args: readonly unknown[]): string {
  // What was normalized already comes as a list in the first place.
  const [first, second] = (Array.isArray(args[0]) ? args[0] : args) as unknown[];
  if (typeof first === 'object' && first !== null) {
    const { path, host } = first as { path?: string; host?: string };
    return path !== undefined ? `the local socket ${path}` : (host ?? 'localhost');
  }
  if (typeof first === 'string' && !/^\d+$/.test(first)) return `the local socket ${first}`;
  return typeof second === 'string' ? second : 'localhost';
}
