// Tries an installed server as its first user would: it writes its settings, answers, makes an account, and ends when told.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Runs a command. @returns what it printed @throws Error with what it printed when it fails */
export function command(name, args, options = {}) {
  const result = spawnSync(name, args, { encoding: 'utf8', maxBuffer: 1 << 28, ...options });
  if (result.error) throw new Error(`${name}: ${result.error.message}`);
  if (result.status !== 0) throw new Error(`${name} ${args.join(' ')} failed:\n${result.stdout}${result.stderr}`);
  return result.stdout;
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** A package that is a module and does nothing. */
export function writeModule(folder) {
  mkdirSync(folder);
  const manifest = { name: 'trial-module', version: '1.0.0', type: 'module', exports: './index.js' };
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  writeFileSync(
    join(folder, 'index.js'),
    `import { defineModule } from '@rookery/module-api';
export default defineModule({ name: 'trial', parseConfig: () => undefined, register() {} });
`,
  );
}

/**
 * @param serverCommand program and first arguments of the server
 * @param toolCommand the same of the operator's command
 * @throws Error with what they printed when something does not work
 */
export async function tryServer(serverCommand, toolCommand, env = process.env) {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-release-'));
  const port = await freePort();
  let printed = '';
  const [program, ...args] = serverCommand;
  const server = spawn(program, [...args, '--server-name', 'release.test', '--port', String(port)], {
    cwd: folder,
    env,
  });
  const ended = once(server, 'exit');
  for (const stream of [server.stdout, server.stderr]) stream.on('data', (text) => (printed += text));
  try {
    const until = Date.now() + 60_000;
    for (;;) {
      if (server.exitCode !== null) throw new Error(`the server ended with ${server.exitCode}`);
      const answer = await fetch(`http://127.0.0.1:${port}/_matrix/client/versions`).catch(() => undefined);
      if (answer?.status === 200) break;
      if (Date.now() > until) throw new Error('the server does not answer');
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    const [tool, ...first] = toolCommand;
    command(tool, [...first, 'config', 'check', '--quiet', 'homeserver.yaml'], { cwd: folder, env });
    const register = ['register-user', '-c', 'homeserver.yaml', '-u', 'first', '-p', 'a long password', '-a'];
    command(tool, [...first, ...register, `http://127.0.0.1:${port}`], { cwd: folder, env });
    // npm comes along, or is there where the server was installed with it.
    writeModule(join(folder, 'trial'));
    const added = command(tool, [...first, 'module', 'add', './trial'], { cwd: folder, env });
    if (!/^ok +trial \(trial-module\)/m.test(added)) throw new Error(`a module was not added:\n${added}`);
    server.kill('SIGTERM');
    const [code] = await ended;
    if (code !== 0) throw new Error(`the server ended with ${code} when it was told to stop`);
    return readFileSync(join(folder, 'homeserver.yaml'), 'utf8');
  } catch (error) {
    throw new Error(`${error.message}\n${printed}`, { cause: error });
  } finally {
    server.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  }
}
