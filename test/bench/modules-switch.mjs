// Runs beside a server that modules.bench.ts measures: says when other modules are in force, and collects memory when asked.
import { writeFileSync } from 'node:fs';
import { ModuleDispatcher } from '@rookery/module-host';

const { install } = ModuleDispatcher.prototype;
ModuleDispatcher.prototype.install = function (registry) {
  const before = install.call(this, registry);
  writeFileSync('modules-installed', '');
  return before;
};

process.on('SIGUSR2', () => {
  globalThis.gc();
  writeFileSync('memory-collected', '');
});
