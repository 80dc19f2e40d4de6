import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { eachDatabase } from '@rookery/testing';

// Writes as fast as it can, ten at a time, each fourth one failing, and says so only when it was acknowledged.
const program = `
  import { openDatabase } from '@rookery/database';
  import { SystemClock } from '@rookery/platform';
  const db = await openDatabase(JSON.parse(process.argv[1]), new SystemClock());
  let next = 0;
  await Promise.all(Array.from({ length: 10 }, async () => {
    for (;;) {
      const id = ++next;
      await db.write(async (tx) => {
        await tx.run('INSERT INTO pairs VALUES (?, 1)', [id]);
        if (id % 4 === 0) throw new Error('no');
        await tx.run('INSERT INTO pairs VALUES (?, 2)', [id]);
      }).then(() => process.stdout.write(id + '\\n'), () => process.stdout.write(-id + '\\n'));
    }
  }));
`;

eachDatabase('A crash', (open) => {
  it('loses nothing that was acknowledged and keeps nothing by halves', async () => {
    const test = await open();
    const db = test.database;
    await db.write((tx) => tx.run('CREATE TABLE pairs (id BIGINT, half INTEGER, UNIQUE (id, half))'));
    const child = spawn(process.execPath, ['--input-type=module', '-e', program, JSON.stringify(test.options)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      if (output.length > 1500) child.kill('SIGKILL');
    });
    await once(child, 'close');

    const told = output.slice(0, output.lastIndexOf('\n')).split('\n').map(Number);
    const kept = await db.query<{ id: number; n: number }>('SELECT id, count(*) AS n FROM pairs GROUP BY id');
    expect(kept.every((row) => row.n === 2)).toBe(true);
    const there = new Set(kept.map((row) => row.id));
    expect(told.filter((id) => id > 0).length).toBeGreaterThan(100);
    expect(told.filter((id) => id > 0 && !there.has(id))).toEqual([]);
    expect(told.filter((id) => id < 0 && there.has(-id))).toEqual([]);
    await test.close();
  });
});
