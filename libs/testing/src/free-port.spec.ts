import { execFile } from 'node:child_process';
import { createServer } from 'node:net';
import { promisify } from 'node:util';
import { freePort } from './free-port.js';

describe('a free port', () => {
  it('is given once: a server that is down for a while has its port back', async () => {
    const ports = new Set<number>();
    for (let i = 0; i < 500; i++) ports.add(await freePort());
    expect(ports.size).toBe(500);
  });

  it('is given to one process, while that runs', async () => {
    const own = new Set<number>();
    for (let i = 0; i < 500; i++) own.add(await freePort());
    const source = new URL('../dist/free-port.js', import.meta.url).href;
    const script = `const { freePort } = await import(${JSON.stringify(source)});
      const ports = []; for (let i = 0; i < 500; i++) ports.push(await freePort()); console.log(JSON.stringify(ports));`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script]);
    const ofAnother = JSON.parse(stdout) as number[];
    expect(ofAnother.filter((port) => own.has(port))).toEqual([]);
  });

  it('can be listened on', async () => {
    const server = createServer();
    const port = await freePort();
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, '127.0.0.1', resolve);
    });
    server.close();
  });
});
