import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);
const source = new URL('./lean-heap.ts', import.meta.url).href;

/** Says for each of its collections whether it was one that saves memory, with little and with much in use, and with little again. */
const program = `
  import { setTimeout } from 'node:timers/promises';
  const { relaxLargeHeap } = await import('${source}');
  relaxLargeHeap();
  let kept = [];
  const collected = async (name) => {
    await setTimeout(1200);
    console.log('now ' + name);
    let some = [];
    for (let n = 0; n < 3_000_000; n++) {
      some.push({ n, more: [n] });
      if (some.length > 200_000) some = some.slice(100_000);
    }
  };
  await collected('little');
  kept = Array.from({ length: 2_000_000 }, (_, n) => ({ n, more: [n] }));
  await collected('much');
  kept = [];
  gc();
  await collected('little again');
`;

async function savings(...options: string[]): Promise<string[]> {
  const { stdout } = await run(process.execPath, [
    ...['--expose-gc', '--trace-gc-nvp', '--no-warnings', ...options],
    ...['--input-type=module', '--eval', program],
  ]);
  const found: string[] = [];
  let name: string | undefined;
  for (const line of stdout.split('\n')) {
    name = /^now (.*)/.exec(line)?.[1] ?? name;
    const saves = /gc=mc reduce_memory=([01])/.exec(line)?.[1];
    if (name === undefined || saves === undefined) continue;
    found.push(`${name}: ${saves}`);
    name = undefined;
  }
  return found;
}

describe('the heap', () => {
  it('is collected to save memory while it is small', async () => {
    expect(await savings('--memory-saver-mode')).toEqual(['little: 1', 'much: 0', 'little again: 1']);
  });

  it('is left to who names the option', async () => {
    const none = ['little: 0', 'much: 0', 'little again: 0'];
    expect(await savings('--memory-saver-mode', '--no-memory-saver-mode')).toEqual(none);
    expect(await savings()).toEqual(none);
  });
});
