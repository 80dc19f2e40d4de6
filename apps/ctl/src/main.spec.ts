import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const main = fileURLToPath(new URL('./main.ts', import.meta.url));

/** The real program in a process of its own, with these lines typed into it. */
function rookery(args: string[], input = ''): { status: number | null; out: string; notes: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], {
    input,
    encoding: 'utf8',
    timeout: 200_000,
  });
  return { status, out: stdout, notes: stderr };
}

describe('the rookery program', () => {
  it('answers questions from piped lines, and prints nothing of a secret', () => {
    const { status, out, notes } = rookery(['hash-password', '-r', '4'], 'sesame\nsesame\n');
    expect(out).toMatch(/^\$2[aby]\$04\$\S{53}\n$/);
    expect(notes).not.toContain('sesame');
    expect(status).toBe(0);
  });

  it('ends with one line and its code when nobody answers', () => {
    const { status, notes } = rookery(['config', 'generate']);
    expect(status).toBe(2);
    expect(notes).toBe(
      'Server name (the part of user ids behind the colon) [localhost]: There is no answer: the input has ended\n',
    );
  });

  it('goes on to its end, as synctl does, when nobody reads on', async () => {
    const child = spawn(process.execPath, [main.replace('main.ts', 'synctl.ts'), '--help']);
    child.stdout.destroy();
    let notes = '';
    child.stderr.on('data', (text: Buffer) => (notes += text.toString()));
    const [status] = (await once(child, 'close')) as [number | null];
    expect([status, notes]).toEqual([0, '']);
  });
});
