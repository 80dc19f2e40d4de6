import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** A CPU profile, as the inspector tells it. */
export interface Profile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string };
    readonly children?: readonly number[];
  }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/**
 * What the main thread of a server does meanwhile. `BENCH_PROFILE=FOLDER` keeps it there.
 * @param inspector the port at which the server was told to be inspected
 */
export async function profileOf<T>(
  name: string,
  inspector: number,
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly profile: Profile }> {
  const [{ webSocketDebuggerUrl }] = (await (await fetch(`http://127.0.0.1:${inspector}/json`)).json()) as [
    { webSocketDebuggerUrl: string },
  ];
  const socket = new WebSocket(webSocketDebuggerUrl);
  await new Promise((resolve) => socket.addEventListener('open', resolve));
  let id = 0;
  const ask = async (method: string, params: object = {}): Promise<unknown> => {
    const own = ++id;
    const answer = new Promise<unknown>((resolve) =>
      socket.addEventListener('message', ({ data }) => {
        const message = JSON.parse(String(data)) as { id: number; result: unknown };
        if (message.id === own) resolve(message.result);
      }),
    );
    socket.send(JSON.stringify({ id: own, method, params }));
    return answer;
  };
  await ask('Profiler.enable');
  await ask('Profiler.setSamplingInterval', { interval: 500 });
  await ask('Profiler.start');
  const result = await work();
  const { profile } = (await ask('Profiler.stop')) as { profile: Profile };
  socket.close();
  const kept = process.env['BENCH_PROFILE'];
  if (kept) await writeFile(join(kept, `${name}.cpuprofile`), JSON.stringify(profile));
  return { result, profile };
}

/** Does the work, profiled only if somebody wants to keep that. */
export async function profiled<T>(name: string, inspector: number, work: () => Promise<T>): Promise<T> {
  return process.env['BENCH_PROFILE'] ? (await profileOf(name, inspector, work)).result : work();
}
