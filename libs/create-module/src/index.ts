/** Writes the package of a new module. */
export { CreateModuleError, createModule } from './create-module.js';
