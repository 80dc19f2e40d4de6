import { pino } from 'pino';
const sync = process.argv[2] === 'sync';
const l = pino({}, pino.destination({ dest: 1, sync })); for (let i=0;i<2000;i++) l.info('x', {i}); 
process.stderr.write('before exit\n');
process.on('exit', () => process.stderr.write('exit event\n'));
if (process.argv[3]) setTimeout(() => { l.info('late'); process.stderr.write('end\n'); process.exit(3);}, 300); else process.exit(3);
