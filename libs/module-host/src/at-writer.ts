import { MatrixError } from '@rookery/matrix-types';
import type { ModuleApi } from '@rookery/module-api';
import { OnlyAtWriterError } from '@rookery/platform';
import { effectPaths, withEffects } from './effects.js';
import { frozenCopy } from './isolation.js';

/** What led to a call, so that what goes round in a ring is noticed in whichever process it comes by. */
export interface CallOrigin {
  /** Events of modules that led to it, each an answer to the one before. */
  readonly events: number;
  /** Questions that wait for it. */
  readonly questions: number;
}

/** The process that writes, for the modules of one that does not. */
export interface WriterBackend {
  /**
   * Has the copy of a module there call something of its API that changes what others see, or needs what only that process has, and resolves once what that changed is seen in this
   * process, too.
   * @throws whatever the call throws there; MatrixError 503 when that process cannot be asked
   */
  call(module: string, path: string, args: readonly unknown[], origin: CallOrigin): Promise<unknown>;
}

/** What reads, and may need for it what only the process that writes can get: the help of other servers, a state that is still fetched. */
const readings = [
  'getRoomState',
  'getStateEventsInRoom',
  'getCanonicalRoomAlias',
  'lookupRoomAlias',
  'usersShareRoom',
  'getProfileForUser',
] as const satisfies readonly (keyof ModuleApi)[];

const paths: ReadonlySet<string> = new Set([...effectPaths, ...readings]);

/** The API of a module in a process that does not write: what changes something that others see is done by the one that does. */
export function passedToWriter(
  api: ModuleApi,
  call: (path: string, args: readonly unknown[]) => Promise<unknown>,
): ModuleApi {
  const atWriter =
    (path: string) =>
    async (...args: unknown[]): Promise<unknown> =>
      frozenCopy(await call(path, args));
  const passed = withEffects(api, atWriter);
  const read =
    (name: (typeof readings)[number]) =>
    async (...args: never[]): Promise<unknown> => {
      try {
        return await (api[name] as (...args: never[]) => Promise<unknown>)(...args);
      } catch (error) {
        if (error instanceof OnlyAtWriterError) return atWriter(name)(...args);
        throw error;
      }
    };
  return { ...passed, ...Object.fromEntries(readings.map((name) => [name, read(name)])) };
}

/** Calls what another process asks for, of the API that a module has here. @throws MatrixError 404 for what nobody may ask for */
export async function calledHere(api: ModuleApi, path: string, args: readonly unknown[]): Promise<unknown> {
  if (!paths.has(path)) throw MatrixError.notFound(`Modules are not to be asked for ${path} by other processes`);
  const [outer = '', inner] = path.split('.');
  const found = (api as unknown as Record<string, unknown>)[outer];
  const method = inner === undefined ? found : (found as Record<string, unknown>)[inner];
  return (method as (...args: readonly unknown[]) => Promise<unknown>)(...args);
}
