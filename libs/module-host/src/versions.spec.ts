import { fitOf, misfitOf } from './versions.js';

it.each([
  ['^1.2.0', '1.2.0', 'fits'],
  ['^1.2.0', '1.9.3', 'fits'],
  ['~1.2', '1.4.0', 'fits'],
  ['1.x', '1.4.0', 'fits'],
  ['*', '7.0.0', 'fits'],
  ['', '7.0.0', 'fits'],
  ['file:../api', '7.0.0', 'fits'],
  ['>=1.2.0', '3.0.0', 'fits'],
  ['>=1.2.0 <3', '3.0.0', 'another server'],
  ['>=1.2.0 <3.0.0', '2.9.0', 'fits'],
  ['^1.2.0', '1.1.9', 'older server'],
  ['^0.3.0', '0.1.0', 'older server'],
  ['^2.0.0', '1.9.0', 'another server'],
  ['^1.0.0', '2.0.0', 'another server'],
  ['^1.0.0 || ^2.4.0', '2.4.1', 'fits'],
  ['^1.0.0 || ^2.4.0', '2.1.0', 'older server'],
  ['^1.0.0 || ^2.4.0', '3.1.0', 'another server'],
])('a module for %s on %s: %s', (range, version, fit) => {
  expect(fitOf(range, version)).toBe(fit);
});

it('says both numbers and what to do', () => {
  expect(misfitOf('^2.0.0', '1.9.0')).toBe(
    'it is made for @rookery/module-api ^2.0.0, this server has 1.9.0; update the server or install an older version of the module',
  );
  expect(misfitOf('^1.0.0', '2.0.0')).toContain('install a newer version of the module');
});
