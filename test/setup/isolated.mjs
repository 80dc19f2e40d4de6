import 'reflect-metadata';
import { jest } from '@jest/globals';

// ESM has no global `jest`; publish it so that the same spec files run in both lanes.
globalThis.jest = jest;
