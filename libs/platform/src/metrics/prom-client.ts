import { createRequire } from 'node:module';
import type * as PromClient from 'prom-client';

const require = createRequire(import.meta.url);

// Each from its own file: the package's index also loads what gathers the processes of a cluster, pushes to a gateway and
// traces, 10 MiB for nothing.
/** A number that only goes up. */
export const Counter = require('prom-client/lib/counter') as typeof PromClient.Counter;
/** A number that goes up and down. */
export const Gauge = require('prom-client/lib/gauge') as typeof PromClient.Gauge;
/** What is shown together. */
export const Registry = require('prom-client/lib/registry') as typeof PromClient.Registry;
