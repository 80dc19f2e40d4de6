/** TypeORM entities for the tables of a Rookery module. */
export { type MigrationClass, moduleDataSource, type ModuleDataSourceOptions, tablePrefix } from './data-source.js';
